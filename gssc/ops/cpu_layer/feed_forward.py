"""The feed-forward network of a layer with its residual: h + drop(W₂ drop(ReLU(W₁ h + b₁)) + b₂).

With M₁ and M₂ the masks of dropout, scaled:

    A = W₁ h + b₁     B = M₁ ⊙ [A > 0]     Y = h + M₂ ⊙ (W₂ (B ⊙ A) + b₂)
    E = M₂ ⊙ ∂Y       D = B ⊙ (E W₂)       ∂h = ∂Y + D W₁
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.cpu_layer.composed import composed_gradients

Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # W₁ [D, C], b₁ [D], W₂ [C, D], b₂ [C]


def composed(h: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, m1: Tensor | None, m2: Tensor | None) -> Tensor:
    """The same, operation by operation."""
    hidden = F.linear(h, w1, b1).relu()
    out = F.linear(hidden if m1 is None else hidden * m1, w2, b2)
    return h + (out if m2 is None else out * m2)


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, *masks: Any) -> Any:
        m1, m2 = masks
        before = torch.addmm(b1, h, w1.t())
        if m1 is None:
            passes, hidden = None, before.relu_()
        else:  # the gradient of ReLU, taken of the mask: zero where what comes in is not positive
            passes = torch.ops.aten.threshold_backward(m1, before, 0)
            hidden = before.mul_(passes)
        out = torch.addmm(b2, hidden, w2.t())
        ctx.save_for_backward(h, w1, b1, w2, b2, m1, m2, passes, hidden)
        return out.add_(h) if m2 is None else torch.addcmul(h, out, m2)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        h, w1, b1, w2, b2, m1, m2, passes, hidden = ctx.saved_tensors
        if torch.is_grad_enabled():
            return composed_gradients(composed, (h, w1, b1, w2, b2, m1, m2), ctx.needs_input_grad, grad)
        d_out = grad if m2 is None else grad * m2
        d_before = d_out @ w2
        if passes is None:
            d_before = torch.ops.aten.threshold_backward(d_before, hidden, 0)
        else:
            d_before.mul_(passes)
        d_h = torch.addmm(grad, d_before, w1)
        return d_h, d_before.t() @ h, d_before.sum(0), d_out.t() @ hidden, d_out.sum(0), None, None


def feed_forward(h: Tensor, weights: Weights, m1: Tensor | None, m2: Tensor | None) -> Tensor:
    """Y [N, C] of h [N, C]; masks [N, D] and [N, C], zero or the scale of dropout, or ``None`` where nothing drops."""
    out: Tensor = _FeedForward.apply(h, *weights, m1, m2)
    return out
