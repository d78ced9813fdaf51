"""The deep set of eigenvalues in Triton.

    forward     1  all weights behind one another
                2  Φ, one program per graph; e before every block is kept
    backward    1  ∂W per program, which takes one graph after the other and computes the inside of blocks again
                2  the sum over programs

There are at most two programs per processor in the backward pass, so that what they write is bounded whatever the
number of graphs; both sums have a fixed order. Sizes come from shapes alone. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gssc.ops.apart import apart
from gssc.ops.phi import naive
from gssc.ops.triton_support import exporting, multiprocessors, wants_exact

CHANNELS = (16, 32, 64)
ROWS = (16, 32, 64)  # of a tile, as many as there are frequencies or more
MAX_FREQUENCIES = ROWS[-1]
PROGRAMS = 2  # of the backward pass, per processor
# Forward and backward, by rows and channels of a tile, else 4: those that spill least. Never 8 for 16 rows, over which
# products of so many warps have read beyond their operands (Triton 3.6).
WARPS = {(32, 64): (8, 8), (64, 64): (4, 8)}


def fits(eigvals: Tensor, weights: Sequence[Tensor]) -> bool:
    """Whether the kernels can do it: float32, few frequencies, a width of theirs, and no gradient of eigenvalues."""
    width, frequencies = weights[0].shape[0], eigvals.shape[1]
    if width not in CHANNELS or not 1 <= frequencies <= MAX_FREQUENCIES or exporting():
        return False
    return not eigvals.requires_grad and all(t.dtype == torch.float32 for t in (eigvals, *weights))


def _launch(backward: bool, kernel: Any, programs: int, *arguments: Any, k: int, width: int, **flags: Any) -> None:
    rows, precision = _rows(k), "tf32x3" if wants_exact(arguments[0]) else "tf32"
    warps = WARPS.get((rows, width), (4, 4))[backward]
    kernel[(programs,)](
        *arguments, K=k, KP=rows, W=width, PRECISION=precision, **flags, num_warps=warps, num_stages=1
    )  # fmt: skip


def _rows(k: int) -> int:
    return next(rows for rows in ROWS if k <= rows)


@torch.library.custom_op("gssc::deep_set_fused", mutates_args=())
def deep_set_fused(
    eigvals: Tensor, eigmask: Tensor, weights: Sequence[Tensor], keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Φ [G, K, C], and for backward the states [blocks, G, KP, C] (none unless ``keep``) and all weights in a row."""
    from gssc.ops.phi import kernels

    (graphs, k), width, blocks = eigvals.shape, weights[0].shape[0], naive.blocks_of(weights)
    flat = torch.cat([weight.reshape(-1) for weight in weights])
    states = eigvals.new_empty((blocks if keep else 0, graphs, _rows(k), width))
    out = eigvals.new_empty((graphs, k, width))
    if graphs:
        tensors = (flat, eigvals.contiguous(), eigmask.contiguous(), states, out)
        _launch(False, kernels.forward_graph, graphs, *tensors, k=k, width=width, BLOCKS=blocks, KEEP=keep)
    return out, states, flat


@deep_set_fused.register_fake
def _(eigvals: Tensor, eigmask: Tensor, weights: Sequence[Tensor], keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    (graphs, k), width, blocks = eigvals.shape, weights[0].shape[0], naive.blocks_of(weights)
    states = eigvals.new_empty((blocks if keep else 0, graphs, _rows(k), width))
    return eigvals.new_empty((graphs, k, width)), states, eigvals.new_empty(sum(w.numel() for w in weights))


@torch.library.custom_op("gssc::deep_set_fused_backward", mutates_args=())
def deep_set_fused_backward(grad: Tensor, eigvals: Tensor, eigmask: Tensor, flat: Tensor, states: Tensor) -> Tensor:
    """Gradients of all weights in a row. Not differentiable."""
    from gssc.ops.phi import kernels

    graphs, k, width = grad.shape
    programs = min(graphs, PROGRAMS * multiprocessors(grad.device))
    if programs == 0:
        return torch.zeros_like(flat)
    partial = flat.new_empty((programs, flat.shape[0]))
    tensors = (flat, eigvals.contiguous(), eigmask.contiguous(), states, grad.contiguous(), partial, graphs)
    sizes = {"SIZE": flat.shape[0], "BLOCKS": states.shape[0]}
    _launch(True, kernels.backward_graphs, programs, *tensors, k=k, width=width, **sizes)
    return partial.view(-1) if programs == 1 else partial.sum(0)


@deep_set_fused_backward.register_fake
def _(grad: Tensor, eigvals: Tensor, eigmask: Tensor, flat: Tensor, states: Tensor) -> Tensor:
    return torch.empty_like(flat)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    eigvals, eigmask, weights, keep = inputs
    assert keep, "only what is kept can be differentiated"
    ctx.save_for_backward(eigvals, eigmask, *output[1:], *weights)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:
    eigvals, eigmask, states, flat, *weights = ctx.saved_tensors
    if grad is None:
        return None, None, [None] * len(weights), None
    if torch.is_grad_enabled():  # somebody will differentiate the result
        return None, None, _differentiable_gradients(grad, eigvals, eigmask, weights), None
    total = deep_set_fused_backward(grad, eigvals, eigmask, flat, states)
    parts = total.split([weight.numel() for weight in weights])
    return None, None, [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)], None


def _differentiable_gradients(
    grad: Tensor, eigvals: Tensor, eigmask: Tensor, weights: Sequence[Tensor]
) -> list[Tensor | None]:
    """Gradients as functions of weights and ``grad``, by way of PyTorch's ops."""
    own = apart(weights)
    with torch.autocast(grad.device.type, enabled=False):
        out = naive.deep_set(eigvals, eigmask, own)
    wanted = [place for place, weight in enumerate(own) if weight.requires_grad]
    found = torch.autograd.grad(out, [own[place] for place in wanted], grad, create_graph=True)
    answers: list[Tensor | None] = [None] * len(weights)
    for place, value in zip(wanted, found, strict=True):
        answers[place] = value
    return answers


deep_set_fused.register_autograd(_backward, setup_context=_setup)


def deep_set(eigvals: Tensor, eigmask: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Φ [G, K, C]; arguments as in the dispatch ``gssc.ops.phi``."""
    keep = torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)
    out: Tensor = deep_set_fused(eigvals, eigmask, list(weights), keep)[0]
    return out
