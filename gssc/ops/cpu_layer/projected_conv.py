"""The global part of a layer whose kernel all channels share: a gain per frequency commutes with the Linear after it.

    F = a + b log(1 + d)     Y = X ⊙ F     W = W_out W_o     H = P (A ⊙ Pᵀ Y Wᵀ) + ((P⊙P) A_s) ⊙ Y W_sᵀ + c

with gains A and A_s [G, K, 1]. The gradients of both terms, ∂X_o and ∂X_s, are those of ``gssc_conv/plain.py``; then

    ∂Y = ∂X_o W + ∂X_s W_s     ∂W = ∂X_oᵀ Y     ∂W_out = ∂W W_oᵀ     ∂W_o = W_outᵀ ∂W     ∂X = ∂Y ⊙ F
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.cpu_layer.composed import composed_gradients
from gssc.ops.conv import plain
from gssc.ops.plain import is_plain_cpu, one_type_on_cpu


class Parameters(NamedTuple):
    """Of the module: a, b [C] or None, W_o, W_s (or None), W_out [C, C] and c [C]."""

    scale: Tensor | None
    log_scale: Tensor | None
    w_o: Tensor
    w_s: Tensor | None
    w_out: Tensor
    bias: Tensor


def composed(
    x: Tensor,
    gains: Tensor,
    self_gains: Tensor | None,
    vectors: Tensor,
    ptr: Tensor,
    log_degree: Tensor | None,
    *parameters: Any,
) -> Tensor:
    """The same, operation by operation."""
    own = Parameters(*parameters)
    if own.scale is not None:
        assert own.log_scale is not None
        assert log_degree is not None
        x = x * (own.scale + own.log_scale * log_degree)
    x_s = None if own.w_s is None else F.linear(x, own.w_s)
    return plain.gssc_conv(F.linear(x, own.w_out @ own.w_o), x_s, vectors, gains, self_gains, ptr) + own.bias


class _ProjectedConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x, gains, self_gains, vectors, ptr, log_degree, *parameters = inputs
        own = Parameters(*parameters)
        factor, y = None, x
        if own.scale is not None and own.log_scale is not None:
            factor = torch.addcmul(own.scale, log_degree, own.log_scale)
            y = x * factor
        w = own.w_out @ own.w_o
        x_s = None if own.w_s is None else y @ own.w_s.t()
        ctx.at = plain.eigenvectors_once(ptr, vectors)
        out, state, scale = plain.convolve(ctx.at, y @ w.t(), x_s, gains, self_gains)
        ctx.save_for_backward(*inputs, factor, y, w, x_s, state, scale)
        return out.add_(own.bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        *inputs, factor, y, w, x_s, state, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            return composed_gradients(composed, inputs, ctx.needs_input_grad, grad)
        x, gains, _, _, _, log_degree, *parameters = inputs
        own = Parameters(*parameters)
        d_o, d_s, _, d_a, d_as, _ = plain.gradients(ctx.at, scale, grad, x_s, gains, state)
        assert d_o is not None
        d_w, d_ws, d_y = d_o.t() @ y, None, d_o @ w
        if own.w_s is not None:
            assert d_s is not None
            d_ws, d_y = d_s.t() @ y, d_y.addmm_(d_s, own.w_s)
        d_scale = d_log_scale = None
        if factor is not None:
            along = d_y * x
            # [2, N] with [N, C]: both sums over nodes as one product.
            d_scale, d_log_scale = (torch.cat([torch.ones_like(log_degree), log_degree], dim=1).t() @ along).unbind()
            d_y.mul_(factor)
        d_own = Parameters(d_scale, d_log_scale, own.w_out.t() @ d_w, d_ws, d_w @ own.w_o.t(), grad.sum(0))
        return d_y, d_a, d_as, None, None, None, *d_own


def fits(x: Tensor, gains: Tensor, vectors: Tensor, ptr: Tensor, parameters: Parameters) -> bool:
    """Whether `projected_conv` can stand for the module: numbers of one type, one bucket, no gradient of P."""
    if vectors.requires_grad or not one_type_on_cpu(x, gains, vectors, *parameters) or not is_plain_cpu(ptr):
        return False
    return plain.eigenvectors_once(ptr, vectors) is not None


def projected_conv(
    x: Tensor,
    gains: Tensor,
    self_gains: Tensor | None,
    vectors: Tensor,
    ptr: Tensor,
    degree: Tensor | None,
    parameters: Parameters,
) -> Tensor:
    """H [N, C] of X [N, C], with gains [G, K, 1], P [N, K], ptr [G + 1] and degrees [N]; see `fits`."""
    log_degree = None if parameters.scale is None or degree is None else torch.log1p(degree.to(x.dtype)).unsqueeze(1)
    out: Tensor = _ProjectedConv.apply(x, gains, self_gains, vectors, ptr, log_degree, *parameters)
    return out
