"""Norms of residuals on the real rows alone, by PyTorch's batch_norm: the judge."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.norm.types import Branch, NormState
from gssc.ops.rowwise.naive import dropped


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
