"""Norms of residuals on the real rows alone, by PyTorch's batch_norm: the judge."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.relu_dropout.naive import dropped
from gssc.ops.norm.types import Branch, Form


def residual_norm(
    branches: Sequence[Branch], x: Tensor | None, mask: Tensor | None, seed: Tensor | None, form: Form
) -> Tensor:
    """Σ norm(x + drop(h)), or x + drop(ReLU(norm(h))); [N, C]."""
    out: Tensor | None = None
    for number, branch in enumerate(branches):
        hidden = branch.rows
        if not form.activation:
            hidden = dropped(hidden, seed, form.site + number, branch.dropout)
            hidden = x + hidden if x is not None and branch.residual else hidden
        part = _normalized(hidden, branch, mask, form)
        out = part if out is None else out + part
    assert out is not None
    if form.activation:
        out = dropped(out.relu(), seed, form.site, branches[0].dropout)
        out = x + out if x is not None and branches[0].residual else out
    return out


def _normalized(hidden: Tensor, branch: Branch, mask: Tensor | None, form: Form) -> Tensor:
    real = torch.ones_like(hidden[:, 0], dtype=torch.bool) if mask is None else mask
    rows = hidden[real]
    wide = torch.promote_types(hidden.dtype, torch.float32)
    by_batch = form.training and rows.shape[0] >= 2
    if by_batch:
        branch.batches.add_(1)
    step = 1.0 / max(int(branch.batches), 1) if form.momentum is None else form.momentum
    done = F.batch_norm(
        rows.to(wide), branch.mean, branch.variance, branch.weight, branch.bias, by_batch, step, form.eps
    ).to(hidden.dtype)
    return torch.zeros_like(hidden).index_put((real.nonzero().view(-1),), done)
