"""The deep set of eigenvalues in Triton.

    forward     Φ, one program per graph; e before every block is kept
    backward    1  ∂W per program, which takes one graph after the other and computes the inside of blocks again
                2  the sum over programs

Weights stand behind one another in one tensor. There are at most two programs per processor in the backward pass, so
that what they write is bounded whatever the number of graphs; both sums have a fixed order. Sizes come from shapes
alone. Where the backward pass is itself to be differentiated, it is made of PyTorch's ops.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import kernels_of, launch
from gssc.ops.op import composed_gradients, is_traced, op
from gssc.ops.phi import naive
from gssc.ops.triton_support import exporting, multiprocessors, power_of_two, shared_memory, wants_exact

MAX_CHANNELS = 128
LARGE_TILES = 128 << 10  # bytes of shared memory that the largest tiles take, more than many GPUs have
ROWS = (16, 32, 64)  # of a tile, as many as there are frequencies or more
MAX_FREQUENCIES = ROWS[-1]
PROGRAMS = 2  # of the backward pass, per processor
# Forward and backward, by rows and channels of a tile, else 4: those that spill least. Never 8 for 16 rows, over which
# products of so many warps have read beyond their operands (Triton 3.6).
WARPS = {(32, 64): (8, 8), (64, 64): (4, 8), (32, 128): (8, 8), (64, 128): (8, 8)}


def fits(eigvals: Tensor, width: int) -> bool:
    """Whether the kernels can do it: float32, few frequencies and channels, and no gradient of eigenvalues."""
    if width > MAX_CHANNELS or not 1 <= eigvals.shape[1] <= MAX_FREQUENCIES or exporting():
        return False
    if width > 64 and eigvals.shape[1] > 32 and shared_memory(eigvals.device) < LARGE_TILES:
        return False
    return not eigvals.requires_grad and eigvals.dtype == torch.float32


def _launch(backward: bool, kernel: Any, programs: int, *tensors: Any, k: int, width: int, **flags: Any) -> None:
    rows, columns, precision = _rows(k), power_of_two(width, 16), "tf32x3" if wants_exact(tensors[0]) else "tf32"
    warps = WARPS.get((rows, columns), (4, 4))[backward]
    shape: dict[str, Any] = {"K": k, "KP": rows, "W": columns, "N": width, "PRECISION": precision}
    launch(kernel, (programs,), *tensors, **shape, **flags, num_warps=warps, num_stages=1)


def _rows(k: int) -> int:
    return next(rows for rows in ROWS if k <= rows)


@op("gssc::deep_set")
def deep_set_forward(
    eigvals: Tensor, eigmask: Tensor, weights: Tensor, width: int, blocks: int, keep: bool
) -> tuple[Tensor, Tensor]:
    """Φ [G, K, C], and for backward the states [blocks, G, KP, W] (none unless ``keep``)."""
    kernels = kernels_of("phi")
    (graphs, k), (out, states) = eigvals.shape, _empty_results(eigvals, eigmask, weights, width, blocks, keep)
    if graphs:
        tensors = (weights, eigvals.contiguous(), eigmask.contiguous(), states, out)
        _launch(False, kernels.forward_graph, graphs, *tensors, k=k, width=width, BLOCKS=blocks, KEEP=keep)
    return out, states


@deep_set_forward.register_fake
def _empty_results(
    eigvals: Tensor, eigmask: Tensor, weights: Tensor, width: int, blocks: int, keep: bool
) -> tuple[Tensor, Tensor]:
    graphs, k = eigvals.shape
    states = eigvals.new_empty((blocks if keep else 0, graphs, _rows(k), power_of_two(width, 16)))
    return eigvals.new_empty((graphs, k, width)), states


@op("gssc::deep_set_backward", fake=lambda grad, eigvals, eigmask, weights, states: torch.empty_like(weights))
def deep_set_backward(grad: Tensor, eigvals: Tensor, eigmask: Tensor, weights: Tensor, states: Tensor) -> Tensor:
    """Gradients of all weights in a row. Not differentiable."""
    kernels = kernels_of("phi")
    graphs, k, width = grad.shape
    programs = min(graphs, PROGRAMS * multiprocessors(grad.device))
    if programs == 0:
        return torch.zeros_like(weights)
    partial = weights.new_empty((programs, weights.shape[0]))
    tensors = (weights, eigvals.contiguous(), eigmask.contiguous(), states, grad.contiguous(), partial)
    sizes = {"numbers": (graphs,), "SIZE": weights.shape[0], "BLOCKS": states.shape[0]}
    _launch(True, kernels.backward_graphs, programs, *tensors, k=k, width=width, **sizes)
    return partial.view(-1) if programs == 1 else partial.sum(0)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    eigvals, eigmask, weights, ctx.width, _, keep = inputs
    assert keep or not weights.requires_grad, "only what is kept can be differentiated"
    ctx.save_for_backward(eigvals, eigmask, weights, output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Any, ...]:
    eigvals, eigmask, weights, states = ctx.saved_tensors
    if grad is None:
        return (None,) * 6
    if torch.is_grad_enabled():  # somebody will differentiate the result

        def composed(flat: Tensor) -> Tensor:
            return naive.deep_set(eigvals, eigmask, naive.split_weights(flat, ctx.width))

        with torch.autocast(grad.device.type, enabled=False):
            (total,) = composed_gradients(composed, [weights], [True], grad)
    else:
        total = deep_set_backward(grad, eigvals, eigmask, weights, states)
    return None, None, total, None, None, None


deep_set_forward.register_autograd(_backward, setup_context=_setup)


class _Flat(torch.autograd.Function):
    """Tensors behind one another; gradients are views of one, without a step of autograd for each of some fifty."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> Tensor:
        ctx.sizes = [weight.shape for weight in weights]
        return torch.cat([weight if weight.dim() == 1 else weight.reshape(-1) for weight in weights])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        parts = grads[0].split([size.numel() for size in ctx.sizes])
        return tuple(p if len(size) == 1 else p.view(size) for p, size in zip(parts, ctx.sizes, strict=True))


def deep_set(eigvals: Tensor, eigmask: Tensor, weights: list[Tensor]) -> Tensor:
    """Φ [G, K, C] from the weights of all units, one after the other."""
    differentiable = torch.is_grad_enabled() and not is_traced()
    flat: Tensor = _Flat.apply(*weights) if differentiable else torch.cat([weight.reshape(-1) for weight in weights])
    keep = torch.is_grad_enabled() and flat.requires_grad
    return deep_set_forward(eigvals, eigmask, flat, weights[0].shape[0], naive.blocks_of(weights), keep)[0]
