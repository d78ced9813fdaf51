"""ReLU and dropout in one Triton kernel each way, with random bits computed from a seed: no mask is kept."""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.relu_dropout import naive
from gssc.ops.triton_support import power_of_two


def _launch(kernel: Any, x: Tensor, tensors: tuple[Any, ...], p: float, site: int, dropout: bool) -> None:
    rows, c = x.shape
    block_c = min(power_of_two(c, 16), 64)
    kernel[(-(-rows // 32), -(-c // block_c))](
        *tensors, rows, naive.threshold(p), naive.scale(p),
        SITE=site, C=c, BLOCK_N=32, BLOCK_C=block_c, DROPOUT=dropout, num_warps=4,
    )  # fmt: skip


@torch.library.custom_op("gssc::relu_dropout_fused", mutates_args=())
def relu_dropout_fused(x: Tensor, seed: Tensor | None, p: float, site: int) -> Tensor:
    """drop(ReLU(x)), [N, C]."""
    from gssc.ops.relu_dropout import kernels

    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _launch(kernels.forward_rows, x, (x, seed, out), p, site, seed is not None)
    return out


@relu_dropout_fused.register_fake
def _(x: Tensor, seed: Tensor | None, p: float, site: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("gssc::relu_dropout_fused_backward", mutates_args=())
def relu_dropout_fused_backward(grad: Tensor, x: Tensor, seed: Tensor | None, p: float, site: int) -> Tensor:
    """∂x."""
    from gssc.ops.relu_dropout import kernels

    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        tensors = (grad.contiguous(), x.contiguous(), seed, out)
        _launch(kernels.backward_rows, x, tensors, p, site, seed is not None)
    return out


@relu_dropout_fused_backward.register_fake
def _(grad: Tensor, x: Tensor, seed: Tensor | None, p: float, site: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, seed, ctx.p, ctx.site = inputs
    ctx.save_for_backward(x, seed)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, seed = ctx.saved_tensors
    if torch.is_grad_enabled():  # somebody will differentiate the result
        return naive.dropped(torch.where(x > 0, grad, 0.0), seed, ctx.site, ctx.p), None, None, None
    return relu_dropout_fused_backward(grad, x, seed, ctx.p, ctx.site), None, None, None


relu_dropout_fused.register_autograd(_backward, setup_context=_setup)


def relu_dropout(x: Tensor, p: float, seed: Tensor | None, site: int) -> Tensor:
    """drop(ReLU(x)), [N, C]."""
    out: Tensor = relu_dropout_fused(x, seed if p else None, p, site)
    return out
