"""The selective scan in Triton: chunks of nodes at once, whatever graphs they are of.

    1  every chunk from a state of zero: its last state, and by how much it lets an earlier state decay
    2  from chunk to chunk: the state with which each begins
    3  every chunk again, from that state: y

Inside a chunk steps are joined by an associative scan in registers. Backward goes the same way from the other end,
G_t = c_t ∂y_t + a_{t+1} G_{t+1}, and makes h again on the way: what is kept is one state [E, S] for each chunk. Sums
over channels and over chunks are added in a fixed order. Numbers are float32 inside; nothing looks at ``ptr``.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import contiguous, kernels_of, launch
from gssc.ops.op import composed_gradients, op
from gssc.ops.scan.torch import beginnings
from gssc.ops.scan.torch import selective_scan as composed
from gssc.ops.triton_support import power_of_two

CHUNK, CHANNELS = 32, 8  # nodes and channels of a program
COLUMNS = 32  # of states of chunks, in a program of the second kernel


def _run(kernel: Any, a: Tensor, nodes: int, *tensors: Tensor) -> None:
    """A program for each chunk and block of channels."""
    (e, s), chunks = a.shape, -(-nodes // CHUNK)
    launch(
        kernel, (chunks, -(-e // CHANNELS)), *tensors, numbers=(nodes,), E=e, S=s, T=CHUNK, BLOCK_E=CHANNELS,
        BLOCK_S=power_of_two(s), num_warps=8,
    )  # fmt: skip


def _carried(decay: Tensor, end: Tensor, backwards: bool) -> Tensor:
    """The state with which each chunk begins, [chunks, E, S]."""
    chunks, columns, start = end.shape[0], end[0].numel(), torch.empty_like(end)
    tensors, sizes = (decay, end, start), {"F": columns, "T": CHUNK, "BLOCK_F": COLUMNS, "BACKWARDS": backwards}
    launch(kernels_of("scan").carry, (-(-columns // COLUMNS),), *tensors, numbers=(chunks,), **sizes, num_warps=4)
    return start


def _of_chunks(a: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    return tuple(a.new_empty((-(-nodes // CHUNK), *a.shape), dtype=torch.float32) for _ in range(2))  # type: ignore[return-value]


@op("gssc::selective_scan")
def _scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    """Y [N, E], and the state with which each chunk begins."""
    kernels, nodes, ends, y = kernels_of("scan"), u.shape[0], _of_chunks(a, u.shape[0]), torch.empty_like(u)
    first = beginnings(ptr, nodes)
    _run(kernels.chunks_forward, a, nodes, u, delta, a, b, first, *ends)
    start = _carried(*ends, backwards=False)
    _run(kernels.forward, a, nodes, u, delta, a, b, c, first, start, y)
    return y, start


@_scan.register_fake
def _(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(u), _of_chunks(a, u.shape[0])[0]


@op("gssc::selective_scan_backward")
def _scan_backward(
    grad: Tensor, u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor, start: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    kernels, nodes, ends = kernels_of("scan"), u.shape[0], _of_chunks(a, u.shape[0])
    first = beginnings(ptr, nodes)
    _run(kernels.chunks_backward, a, nodes, grad, delta, a, c, first, *ends)
    after = _carried(*ends, backwards=True)
    d_u, d_delta, d_a = torch.empty_like(u), torch.empty_like(u), torch.empty_like(start)
    blocks = (-(-u.shape[1] // CHANNELS), *b.shape)
    d_b, d_c = (b.new_empty(blocks, dtype=torch.float32) for _ in range(2))
    inputs = (grad, u, delta, a, b, c, first, start, after)
    _run(kernels.backward, a, nodes, *inputs, d_u, d_delta, d_a, d_b, d_c)
    return d_u, d_delta, d_a.sum(0).to(a.dtype), d_b.sum(0).to(b.dtype), d_c.sum(0).to(c.dtype)


@_scan_backward.register_fake
def _(grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in inputs[:5])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    *inputs, start = ctx.saved_tensors
    if torch.is_grad_enabled():  # somebody will differentiate the result
        return composed_gradients(composed, inputs, ctx.needs_input_grad, grad)
    return (*_scan_backward(grad.contiguous(), *inputs, start), None)


_scan.register_autograd(_backward, setup_context=_setup)


def selective_scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor) -> Tensor:
    """Arguments as in ``gssc.ops.scan``."""
    return _scan(*contiguous(u, delta, a, b, c), ptr)[0] if u.numel() else u.clone()
