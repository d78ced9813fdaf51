"""Batch normalisation of a module with what stands around it, as one op on a GPU."""

from collections.abc import Sequence

from torch import Tensor, nn

from gssc.nn.norm import BatchNorm
from gssc.ops import Branch, Form, residual_norm
from gssc.ops.triton_support import can_fuse


def norms_fuse(norms: Sequence[nn.Module | None], training: bool, *rows: Tensor | None) -> bool:
    """Whether the op can stand for these norms (None counts for nothing) on such rows.

    Not over processes, nor where somebody watches a norm, nor where settings or modes differ, nor where ``training``
    layers (which drop out) hold norms that are not.
    """
    present = [norm for norm in norms if norm is not None]
    if not present or not can_fuse(*rows) or not all(_fuses(norm, training) for norm in present):
        return False
    return len({(norm.eps, norm.momentum, norm.training) for norm in present}) == 1


def _fuses(norm: nn.Module, training: bool) -> bool:
    if not isinstance(norm, BatchNorm) or norm.synchronized or (training and not norm.training):
        return False
    return norm.affine and norm.track_running_stats and not (norm._forward_pre_hooks or norm._forward_hooks)


def as_branch(norm: nn.Module, rows: Tensor, dropout: float = 0.0, residual: bool = True) -> Branch:
    """The norm with what it is given."""
    assert isinstance(norm, BatchNorm)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    state = (norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked)
    return Branch(rows, *state, dropout, residual)


def fused_norm(
    norm: nn.Module,
    branches: Sequence[Branch],
    x: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None = None,
    site: int = 0,
    activation: bool = False,
) -> Tensor:
    """`gssc.ops.norm` with the settings of ``norm``, which all branches share."""
    assert isinstance(norm, BatchNorm)
    form = Form(norm.training, norm.momentum, norm.eps, activation, site)
    return residual_norm(branches, x, mask, seed=seed, form=form)


def normalize(norm: BatchNorm, x: Tensor, mask: Tensor | None) -> Tensor:
    """``norm(x, mask)``, as one op where it can be."""
    if not norms_fuse([norm], norm.training, x):
        return norm(x, mask)
    return fused_norm(norm, [as_branch(norm, x)], None, mask)
