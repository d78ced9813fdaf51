"""The judge: norms by PyTorch's batch_norm on the real rows alone, and the random numbers of the kernels."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.norm.types import Branch, NormState

LIMIT = 1 << 24  # random numbers are 24 bits wide, so that float32 could hold them
WORD = 0xFFFFFFFF


def residual_norm(
    x: Tensor | None,
    branches: Sequence[Branch],
    states: Sequence[NormState],
    mask: Tensor | None,
    seed: Tensor | None,
    site: int,
    activation: bool,
) -> Tensor:
    """Σ norm(x + drop(h)), or x + drop(ReLU(norm(h))); [N, C]."""
    out: Tensor | None = None
    for number, (branch, state) in enumerate(zip(branches, states, strict=True)):
        hidden = branch.rows
        if not activation:
            hidden = dropped(hidden, seed, site + number, branch.dropout)
            hidden = x + hidden if x is not None and branch.residual else hidden
        part = _normalized(hidden, state, mask)
        out = part if out is None else out + part
    assert out is not None
    if activation:
        out = dropped(out.relu(), seed, site, branches[0].dropout)
        out = x + out if x is not None and branches[0].residual else out
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


def threshold(p: float) -> int:
    """Random numbers below it drop an entry: ``p`` in steps of 2⁻²⁴."""
    return min(round(p * LIMIT), LIMIT - 1)


def scale(p: float) -> float:
    """What kept entries are multiplied by, so that the mean stays: 1 / (1 - p), rounded as a kernel's argument is."""
    return float(torch.tensor(LIMIT / (LIMIT - threshold(p)), dtype=torch.float32))


def kept(seed: Tensor, site: int, rows: int, channels: int, p: float) -> Tensor:
    """Which entries of [N, C] dropout leaves: a hash of their place, of the site, and of two words of a seed."""
    low, high = (word & WORD for word in seed[:2].long().unbind())
    row = torch.arange(rows, device=seed.device)
    column = torch.arange(channels, device=seed.device) * 0x9E3779B9
    by_row = _mixed(row ^ _mixed((low + site * 0x9E3779B9) & WORD))
    bits = _mixed(((by_row.unsqueeze(1) + column) & WORD) ^ high)
    return (bits >> 8) >= threshold(p)


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers in which every bit depends on every other; numbers are held in 64 bits."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & WORD
    x = ((x ^ (x >> 15)) * 0x735A2D97) & WORD
    return x ^ (x >> 15)


def dropped(x: Tensor, seed: Tensor | None, site: int, p: float) -> Tensor:
    """Dropout of x [N, C]; none where there is no seed."""
    if seed is None or p == 0.0:
        return x
    return torch.where(kept(seed, site, x.shape[0], x.shape[1], p), x * scale(p), 0.0)


def relu_dropout(x: Tensor, p: float, seed: Tensor | None, site: int) -> Tensor:
    """drop(ReLU(x)), [N, C]."""
    return dropped(x.relu(), seed, site, p)


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """X ⊙ (a + b log(1 + d)), [N, C]."""
    return x * (scale + log_scale * torch.log1p(degree.to(x.dtype)).unsqueeze(1))
