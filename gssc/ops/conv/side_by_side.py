"""The convolution of X_o and X_s side by side in one tensor [N, 2C], as one product of x makes them, plus a bias.

The kernels are those of ``fused.py``; the gradient is one tensor too. Where a layer is small, launches are what takes
time: one product forward and two backward, in place of two, four and a sum. X_o is kept here, which ``fused.py``
avoids: for large batches that is the form to take.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.apart import apart
from gssc.ops.conv import torch as eager, triton as fused
from gssc.ops.triton_support import can_fuse, exporting

LARGEST = 1 << 21  # numbers, N × C


def fits(x: Tensor, *others: Tensor | None) -> bool:
    """Whether to take this form for such features; ``others`` go to the kernels with them, P [N, K] first."""
    vectors = others[0]
    few = vectors is not None and vectors.shape[1] <= fused.MAX_FREQUENCIES
    if exporting():  # a limit on the nodes would become one of the exported program
        return False
    return few and can_fuse(x, *others) and x.numel() <= LARGEST


def _dtype(both: Tensor, bias: Tensor | None) -> torch.dtype:
    return both.dtype if bias is None else torch.promote_types(both.dtype, bias.dtype)


@torch.library.custom_op("gssc::conv_side_by_side", mutates_args=())
def conv_side_by_side(
    both: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, bias: Tensor | None, ptr: Tensor
) -> tuple[Tensor, Tensor]:
    """H [N, C] and U [G, K, C] in float32."""
    x_o, x_s = both.contiguous().chunk(2, 1)
    return fused.forward(x_o, x_s, vectors, gains, self_gains, ptr, _dtype(both, bias), bias, parts=2)


@conv_side_by_side.register_fake
def _(
    both: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, bias: Tensor | None, ptr: Tensor
) -> tuple[Tensor, Tensor]:
    c = both.shape[1] // 2
    state = both.new_empty((ptr.shape[0] - 1, vectors.shape[1], c), dtype=torch.float32)
    return both.new_empty((both.shape[0], c), dtype=_dtype(both, bias)), state


@torch.library.custom_op("gssc::conv_side_by_side_backward", mutates_args=())
def conv_side_by_side_backward(
    grad: Tensor, both: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, ptr: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """∂X_o | ∂X_s [N, 2C], ∂A, ∂A_s."""
    both = both.contiguous()
    found = torch.empty_like(both)
    d_o, d_s = found.chunk(2, 1)
    x_s = both.chunk(2, 1)[1]
    d_a, d_as = fused.backward(grad, x_s, vectors, gains, self_gains, ptr, state, d_o, d_s, parts=2)
    assert d_a is not None
    assert d_as is not None
    return found, d_a, d_as


@conv_side_by_side_backward.register_fake
def _(
    grad: Tensor, both: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, ptr: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return both.new_empty(both.shape), gains.new_empty(gains.shape), self_gains.new_empty(self_gains.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, state = ctx.saved_tensors
    both, vectors, gains, self_gains, bias, ptr = inputs
    if grad is None:
        return (None,) * 6
    if ctx.needs_input_grad[1] or torch.is_grad_enabled():  # of P, or to be differentiated: what eager is made of
        return _eager_gradients(inputs, grad)
    found, d_a, d_as = conv_side_by_side_backward(grad, both, vectors, gains, self_gains, ptr, state)
    d_bias = None if bias is None else grad.sum(0).to(bias.dtype)
    return found, None, d_a, d_as, d_bias, None


def _eager_gradients(inputs: list[Any], grad: Tensor) -> tuple[Tensor | None, ...]:
    create = torch.is_grad_enabled()
    with torch.enable_grad():
        own = apart(inputs)
        both, vectors, gains, self_gains, bias, ptr = own
        x_o, x_s = both.chunk(2, 1)
        out = eager.conv(x_o, x_s, vectors, gains, self_gains, ptr)[0]
        out = out if bias is None else out + bias
        wanted = [tensor for tensor in own[:5] if tensor is not None and tensor.requires_grad]
        found = iter(torch.autograd.grad(out, wanted, grad, create_graph=create))
    return tuple(None if tensor is None or not tensor.requires_grad else next(found) for tensor in inputs)


conv_side_by_side.register_autograd(_backward, setup_context=_setup)


def gssc_conv(
    both: Tensor, vectors: Tensor, gains: Tensor, self_gains: Tensor, bias: Tensor | None, ptr: Tensor
) -> Tensor:
    """H = P (A ⊙ PᵀX_o) + ((P⊙P) A_s) ⊙ X_s + bias for every graph of the batch, [N, C]."""
    out: Tensor = conv_side_by_side(both, vectors, gains, self_gains, bias, ptr)[0]
    return out
