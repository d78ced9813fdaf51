"""Scales by degree, in one Triton kernel each way. A backward pass that is differentiated is made of PyTorch's ops."""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.launch import contiguous, launch
from gssc.ops.linears.triton import column_sums
from gssc.ops.norm import naive
from gssc.ops.norm.triton import HELD, HELD_CHANNELS
from gssc.ops.op import composed_gradients, empty_like, op, promoted
from gssc.ops.triton_support import power_of_two


def _scale(x: Tensor, grad: Tensor | None, a: Tensor, b: Tensor, degree: Tensor, sums: Tensor | None) -> Tensor:
    """X ⊙ (a + b log(1 + d)) or, from the gradient of that, the one of x and, in ``sums``, those of a and b."""
    from gssc.ops.norm.kernels.rows import scale_rows

    (rows, c), out = x.shape, empty_like(x)
    if x.numel():
        block_n, block_c = 64, min(power_of_two(c, 16), 64)
        if sums is not None and sums.shape[0] == 1:
            block_n, block_c = power_of_two(rows, 16), HELD_CHANNELS
        launch(
            scale_rows, (-(-rows // block_n), -(-c // block_c)), *contiguous(x, grad, a, b, degree), out, sums,
            numbers=(rows,), C=c, BLOCK_N=block_n, BLOCK_C=block_c, num_warps=max(1, min(block_n * block_c // 512, 16)),
        )  # fmt: skip
    elif sums is not None:
        sums.zero_()
    return out


@op("gssc::degree_scale", fake=empty_like)
def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """X ⊙ (a + b log(1 + d)), [N, C]."""
    return _scale(x, None, scale, log_scale, degree, None)


@op("gssc::degree_scale_backward")
def _degree_backward(
    grad: Tensor, x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor
) -> tuple[Tensor, Tensor]:
    """∂x [N, C], and ∂a and ∂b [2, C]."""
    blocks = 1 if x.shape[0] <= HELD else -(-x.shape[0] // 64)
    sums = x.new_empty((blocks, 2, x.shape[1]), dtype=promoted(x, least=torch.float32))
    d_x = _scale(x, grad, scale, log_scale, degree, sums)
    return d_x, sums.view(2, -1) if blocks == 1 else column_sums(sums.flatten(1)).view(2, -1)


@_degree_backward.register_fake
def _(grad: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return empty_like(x), x.new_empty((2, x.shape[1]), dtype=promoted(x, least=torch.float32))


def _backward_degree(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, log_scale, degree = saved = ctx.saved_tensors
    if torch.is_grad_enabled():  # somebody will differentiate the result
        return composed_gradients(naive.degree_scale, saved, ctx.needs_input_grad, grad)
    d_x, sums = _degree_backward(grad, x, scale, log_scale, degree)
    return d_x, sums[0].to(scale.dtype), sums[1].to(log_scale.dtype), None


degree_scale.register_autograd(
    _backward_degree, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)
