"""Norms of residuals by the modules themselves and PyTorch's ops."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.ops.norm.types import Branch
from gssc.ops.rowwise.torch import dropout


def residual_norm(
    x: Tensor | None, branches: Sequence[Branch], mask: Tensor | None, training: bool, activation: bool
) -> Tensor:
    """Σ norm(x + drop(h)), or x + drop(ReLU(norm(h))); [N, C]."""
    total: Tensor | None = None
    for branch in branches:
        hidden, residual = branch.rows, x if branch.residual else None
        if activation:
            return dropout(_normed(branch, hidden, mask).relu(), branch.dropout, training, residual)
        part = _normed(branch, dropout(hidden, branch.dropout, training, residual), mask)
        total = part if total is None else total + part
    assert total is not None
    return total


def _normed(branch: Branch, rows: Tensor, mask: Tensor | None) -> Tensor:
    """``norm(rows)``; one that looks at other rows, as those with a kernel do, is told which of them are real."""
    norm = branch.norm
    assert isinstance(norm, torch.nn.Module)
    out: Tensor = norm(rows) if mask is None or not hasattr(norm, "kernel_state") else norm(rows, mask)
    return out
