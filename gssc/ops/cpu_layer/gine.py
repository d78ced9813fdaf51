"""GINE with its network: W₂ ReLU(W₁ z + b₁) + b₂ of z_i = (1 + ε) x_i + Σ_j ReLU(x_j + e_ij).

With m_p = ReLU(x_j + e_ij) for edge p from j to i, and T = ReLU(W₁ z + b₁):

    D = [T > 0] ⊙ (∂Y W₂)     ∂z = D W₁     ∂m_p = [m_p > 0] ∂z_i     ∂x_j = (1 + ε) ∂z_j + Σ_p ∂m_p     ∂e_p = ∂m_p
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.cpu_layer.composed import composed_gradients
from gssc.ops.edges.plan import EdgePlan
from gssc.ops.gine import torch as eager
from gssc.ops.gine.planned import bags

Weights = tuple[Tensor, Tensor, Tensor, Tensor]  # W₁ [D, C], b₁ [D], W₂ [C, D], b₂ [C]


def composed(
    x: Tensor, edge_attr: Tensor | None, eps: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, edge_index: Tensor
) -> Tensor:
    """The same, operation by operation."""
    z = eager.gine_messages(x, edge_attr, edge_index) + (1 + eps) * x
    return F.linear(F.linear(z, w1, b1).relu(), w2, b2)


class _GINE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x, edge_attr, eps, w1, b1, w2, b2, edge_index, *plan = inputs
        order = EdgePlan(*plan)
        message = x.index_select(0, edge_index[0])
        if edge_attr is not None:
            message.add_(edge_attr)
        message.relu_()
        z = bags(message, order.by_target, order.target_ptr).addcmul_(x, 1 + eps)
        hidden = torch.addmm(b1, z, w1.t()).relu_()
        ctx.save_for_backward(*inputs[:8], order.by_source, order.source_ptr, message, z, hidden)
        return torch.addmm(b2, hidden, w2.t())

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        *inputs, by_source, source_ptr, message, z, hidden = ctx.saved_tensors
        x, _, eps, w1, _, w2, _, edge_index = inputs
        rest = len(ctx.needs_input_grad) - len(inputs)
        if torch.is_grad_enabled():
            return *composed_gradients(composed, inputs, ctx.needs_input_grad[: len(inputs)], grad), *[None] * rest
        d_hidden = torch.ops.aten.threshold_backward(grad @ w2, hidden, 0)
        d_z = d_hidden @ w1
        change = torch.ops.aten.threshold_backward(d_z.index_select(0, edge_index[1]), message, 0)
        d_eps = (d_z * x).sum().view_as(eps) if ctx.needs_input_grad[2] else None
        d_x = bags(change, by_source, source_ptr).addcmul_(d_z, 1 + eps)
        d_weights = (d_hidden.t() @ z, d_hidden.sum(0), grad.t() @ hidden, grad.sum(0))
        return d_x, change if ctx.needs_input_grad[1] else None, d_eps, *d_weights, None, *[None] * rest


def gine(
    x: Tensor, edge_attr: Tensor | None, eps: Tensor, weights: Weights, edge_index: Tensor, plan: EdgePlan
) -> Tensor:
    """Y [N, C] of x [N, C] and edges e [E, C]; all numbers of one type."""
    out: Tensor = _GINE.apply(x, edge_attr, eps, *weights, edge_index, *plan)
    return out
