"""A feed-forward network with its residual and its norm, as one step of autograd.

    forward     u = x + drop(W₂ a + b₂),  a = drop(ReLU(W₁ x + b₁)),  y = norm(u)      three launches for few rows
    backward    ∂u from the norm, ∂a = W₂ᵀ drop(∂u), ∂x = ∂u + W₁ᵀ (∂a where a > 0)    three launches, with ∂W and ∂b

Of what is between the products only a is kept: what was dropped, or negative, is zero there.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gssc.ops.linears import triton as products
from gssc.ops.norm import naive
from gssc.ops.norm.naive import NormState
from gssc.ops.norm.triton import composed_norm, norm_backward, norm_forward
from gssc.ops.op import composed_gradients, is_traced, quick_apply, weight_and_bias


def _forward(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, scale: Tensor, shift: Tensor, norm: NormState,
    mask: Tensor | None, seed: Tensor | None, p: float, site: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Y, and what the backward pass needs: a, W₂ a + b₂ and statistics."""
    narrow = x.to(w1.dtype)  # autocast has products in half precision, but not the residual
    hidden = products.forward(narrow, (w1,), (b1,), activation=True, seed=seed, p=p, site=site)
    rows = products.forward(hidden, (w2,), (b2,))
    moves = norm.training and norm.momentum is not None
    out, stats = norm_forward.function(
        rows, None, x, scale, shift, None, None, norm.mean, norm.variance, None, None, mask, seed, (p, 0.0),
        (True, False), norm.eps, False, site + 1, norm.training,
        *((norm.batches, None, norm.momentum) if moves else ()),
    )  # fmt: skip
    if norm.training and not moves:
        naive.move_running_statistics(stats[0, 2:], *norm[2:5], norm.momentum)
    return out, hidden, rows, stats


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        out, *kept = _forward(*inputs)
        norm, mask, seed, ctx.p, ctx.site = inputs[7:]
        ctx.eps, ctx.form = norm.eps, ((ctx.p, 0.0), (True, False), False, ctx.site + 1)
        ctx.save_for_backward(*inputs[:7], mask, seed, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, w1, b1, w2, b2, scale, shift, mask, seed, hidden, rows, stats = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate the result

            def composed(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, *norm: Any) -> Tensor:
                fed = naive.feed_forward(x.to(w1.dtype), w1, b1, w2, b2, seed, ctx.p, ctx.site)
                return composed_norm(fed, None, x, *norm, *fixed)

            fixed: Any = (None, None, mask, seed, stats, ctx.eps, ctx.form)

            inputs = (x, w1, b1, w2, b2, scale, shift)
            return composed_gradients(composed, inputs, ctx.needs_input_grad, *grads)
        saved = (rows, None, x, scale, shift, None, None, mask, seed, stats)
        sums, d_rows, d_x = norm_backward.function(grads[0], saved, *ctx.form)
        d_hidden, *d_outer = products.backward(d_rows, hidden, (w2,), hidden=True, p=ctx.p)
        d_x, *d_inner = products.backward(d_hidden, x.to(w1.dtype), (w1,), added=d_x)
        d_shift, d_scale = (row.to(scale.dtype) for row in sums.unbind())
        return d_x, *d_inner, *d_outer, d_scale, d_shift, *[None] * 5


_quick_apply = quick_apply(_FeedForward)


def residual_feed_forward(
    x: Tensor, inner: nn.Linear, outer: nn.Linear, norm: NormState, mask: Tensor | None, seed: Tensor | None,
    p: float, site: int,
) -> Tensor:  # fmt: skip
    """See ``gssc.ops.norm``; weights are used without calling the modules."""
    weights: Any = (*weight_and_bias(inner), *weight_and_bias(outer))
    if torch.is_autocast_enabled(x.device.type):
        weights = [weight.to(torch.get_autocast_dtype(x.device.type)) for weight in weights]
    inputs = (x, *weights, norm.weight, norm.bias, norm, mask, seed if p else None, p, site)
    if not torch.is_grad_enabled():
        return _forward(*inputs)[0]
    return _FeedForward.apply(*inputs) if is_traced() else _quick_apply(*inputs)
