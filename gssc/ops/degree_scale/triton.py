"""Features scaled by degree in Triton; a backward pass that is itself differentiated is made of PyTorch's ops."""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.norm.triton import HELD, HELD_CHANNELS, wide
from gssc.ops.triton_support import power_of_two


def _launch(kernel: Any, x: Tensor, held: bool, *arguments: Any) -> None:
    import triton.language as tl

    (rows, c), double = x.shape, x.dtype == torch.float64
    block_n, block_c = (power_of_two(rows, 16), HELD_CHANNELS) if held else (64, min(power_of_two(c, 16), 64))
    kernel[(-(-rows // block_n), -(-c // block_c))](
        *arguments, rows, C=c, BLOCK_N=block_n, BLOCK_C=block_c, ACC=tl.float64 if double else tl.float32,
        num_warps=max(1, min(block_n * block_c // 512, 16)),
    )  # fmt: skip


@torch.library.custom_op("gssc::degree_scale_fused", mutates_args=())
def degree_scale_fused(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """Y [N, C]."""
    from gssc.ops.degree_scale import kernels

    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _launch(kernels.forward_rows, x, False, x, scale, log_scale, degree.contiguous(), out)
    return out


@degree_scale_fused.register_fake
def _(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("gssc::degree_scale_fused_backward", mutates_args=())
def degree_scale_fused_backward(
    grad: Tensor, x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor
) -> tuple[Tensor, Tensor]:
    """∂x [N, C], and ∂a and ∂b [2, C]."""
    from gssc.ops.degree_scale import kernels

    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    held = x.shape[0] <= HELD
    sums = x.new_empty((1 if held else -(-x.shape[0] // 64), 2, x.shape[1]), dtype=wide(x))
    if not x.numel():
        return d_x, sums[0].zero_()
    tensors = (grad.contiguous(), x.contiguous(), scale, log_scale, degree.contiguous(), d_x, sums)
    _launch(kernels.backward_rows, x, held, *tensors)
    return d_x, sums.view(2, -1) if held else sums.sum(0)


@degree_scale_fused_backward.register_fake
def _(grad: Tensor, x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty((2, x.shape[1]), dtype=wide(x))


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, scale, log_scale, degree = ctx.saved_tensors
    if torch.is_grad_enabled():  # somebody will differentiate the result
        log_degree = torch.log1p(degree.to(x.dtype)).unsqueeze(1)
        along = grad * x
        return grad * (scale + log_scale * log_degree), along.sum(0), (along * log_degree).sum(0), None
    d_x, sums = degree_scale_fused_backward(grad, x, scale, log_scale, degree)
    return d_x, sums[0].to(scale.dtype), sums[1].to(log_scale.dtype), None


degree_scale_fused.register_autograd(_backward, setup_context=_setup)


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """X ⊙ (a + b log(1 + d)), [N, C]."""
    out: Tensor = degree_scale_fused(x, scale, log_scale, degree)
    return out
