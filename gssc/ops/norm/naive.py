"""The judge: norms by PyTorch's batch_norm on the real rows alone."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.ops.random import dropped


class NormState(NamedTuple):
    """A batch normalisation as kernels need it.

    γ, β, running mean and variance [C], and the number of batches that these have seen [], as ``nn.BatchNorm1d`` holds
    them; the last three move on in training.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor
    eps: float = 1e-5
    momentum: float | None = 0.1  # None: the running statistics are the mean over all batches
    training: bool = True


class Branch(NamedTuple):
    """What is normalised, rows [N, C], and by what.

    ``norm`` is a module, called with the rows (and the mask, if it is a `gssc.nn.BatchNorm`) unless `norm_state` tells
    its numbers; or such a state itself.
    """

    rows: Tensor
    norm: nn.Module | NormState
    dropout: float = 0.0
    residual: bool = True  # whether x, where it is given, is added


def residual_norm(
    x: Tensor | None, branches: Sequence[Branch], states: Sequence[NormState], mask: Tensor | None,
    seed: Tensor | None, site: int, activation: bool,
) -> Tensor:  # fmt: skip
    """Σ norm(x + drop(h)), or x + drop(ReLU(norm(h))); [N, C]. No ``seed``: no dropout."""
    rows, _, dropouts, residuals = zip(*branches, strict=True)

    def norm(hidden: Tensor, number: int) -> Tensor:
        return _normalized(hidden, states[number], mask)

    return composed(norm, x, rows, seed, dropouts, residuals, activation, site)


def composed(
    norm: Callable[[Tensor, int], Tensor], x: Tensor | None, rows: Sequence[Tensor], seed: Tensor | None,
    dropouts: Sequence[float], residuals: Sequence[bool], activation: bool, site: int,
) -> Tensor:  # fmt: skip
    """The equations; ``norm`` is told what it normalises and the number of the branch."""
    parts = []
    for number, hidden in enumerate(rows):
        if not activation:
            hidden = dropped(hidden, seed, site + number, dropouts[number])
            hidden = x + hidden if x is not None and residuals[number] else hidden
        parts.append(norm(hidden, number))
    out = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    if activation:
        out = dropped(out.relu(), seed, site, dropouts[0])
        out = x + out if x is not None and residuals[0] else out
    return out


def _normalized(hidden: Tensor, state: NormState, mask: Tensor | None) -> Tensor:
    real = torch.ones_like(hidden[:, 0], dtype=torch.bool) if mask is None else mask
    rows = hidden[real]
    wide = torch.promote_types(hidden.dtype, torch.float32)
    by_batch = state.training and rows.shape[0] >= 2
    if by_batch:
        state.batches.add_(1)
    step = 1.0 / max(int(state.batches), 1) if state.momentum is None else state.momentum
    normed = F.batch_norm(
        rows.to(wide), state.mean, state.variance, state.weight, state.bias, by_batch, step, state.eps
    ).to(hidden.dtype)
    return torch.zeros_like(hidden).index_put((real.nonzero().view(-1),), normed)


@torch.no_grad()
def move_running_statistics(
    moments: Iterable[Tensor], mean: Tensor, variance: Tensor, batches: Tensor, momentum: float | None
) -> None:
    """Running statistics take a batch into account: its mean, Σ (u - mean)² and n, if that is two or more."""
    center, squares, n = moments
    enough = (n >= 2).any()
    batches.add_(enough)
    step = 1.0 / batches.clamp(min=1) if momentum is None else momentum
    for running, batch in ((mean, center), (variance, squares / (n - 1).clamp(min=1))):
        running.copy_(torch.where(enough, (1 - step) * running + step * batch, running))


def feed_forward(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, seed: Tensor | None, p: float, site: int
) -> Tensor:
    """W₂ drop(ReLU(W₁ x + b₁)) + b₂, [N, C]."""
    return dropped((x @ w1.t() + b1).relu(), seed, site, p) @ w2.t() + b2


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """X ⊙ (a + b log(1 + d)), [N, C]."""
    return x * (scale + log_scale * torch.log1p(degree.to(x.dtype)).unsqueeze(1))
