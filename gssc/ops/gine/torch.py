"""The sums of GINE and GCN with PyTorch's ops.

On a CPU, over edges whose order by targets and by sources is known, the sum over the edges of a node is a bag of rows
(``embedding_bag``), several times faster than adding rows one by one:

    m_p = ReLU(x_j + e_ij)      h_i = (1 + ε) x_i + Σ m_p                                     over edges p from j to i
    ∂m_p = [m_p > 0] ∂h_i       ∂x_j = (1 + ε) ∂h_j + Σ ∂m_p     ∂e_p = ∂m_p     ∂ε = Σ ∂h ⊙ x
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.edges.plan import EdgePlan
from gssc.ops.op import composed_gradients, is_traced

BAG_TYPES = (torch.float32, torch.float64)


def gine_messages(
    x: Tensor, edge_attr: Tensor | None, edge_index: Tensor, plan: EdgePlan | None, eps: Tensor | None
) -> Tensor:
    """(1 + ε) x_i + Σ_j ReLU(x_j + e_ij) for every node i, [N, C]."""
    bags_fit = plan is not None and x.dtype in BAG_TYPES and x.device.type == "cpu"
    if bags_fit and (edge_attr is None or edge_attr.dtype == x.dtype) and not is_traced(x, edge_attr, edge_index):
        assert plan is not None
        out: Tensor = _BaggedMessages.apply(x, edge_attr, eps, edge_index, *plan)
        return out
    return gathered_messages(x, edge_attr, eps, edge_index)


def gathered_messages(x: Tensor, edge_attr: Tensor | None, eps: Tensor | None, edge_index: Tensor) -> Tensor:
    """The same, operation by operation: three tensors [E, C]."""
    message = x.index_select(0, edge_index[0])
    if edge_attr is not None:
        message = message + edge_attr
    total = x.new_zeros(x.shape).index_add(0, edge_index[1], message.relu().to(x.dtype))
    return total if eps is None else total + (1 + eps) * x


class _BaggedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x, edge_attr, eps, edge_index, by_target, _, target_ptr, by_source, _, source_ptr = inputs
        message = x.index_select(0, edge_index[0])
        if edge_attr is not None:
            message.add_(edge_attr)
        message.relu_()
        ctx.save_for_backward(x, edge_attr, eps, edge_index, message, by_source, source_ptr)
        total = _bags(message, by_target, target_ptr)
        return total if eps is None else total.addcmul_(x, 1 + eps)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        x, edge_attr, eps, edge_index, message, by_source, source_ptr = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if torch.is_grad_enabled():  # somebody will differentiate the result
            inputs = (x, edge_attr, eps, edge_index)
            return *composed_gradients(gathered_messages, inputs, needed[:4], grad), *[None] * 6
        change = torch.ops.aten.threshold_backward(grad.index_select(0, edge_index[1]), message, 0)
        d_x, d_eps = _bags(change, by_source, source_ptr) if needed[0] else None, None
        if eps is not None:
            d_x = None if d_x is None else d_x.addcmul_(grad, 1 + eps)
            d_eps = (grad * x).sum().view_as(eps) if needed[2] else None
        return d_x, change if needed[1] else None, d_eps, *[None] * 7


def neighbor_sum(x: Tensor, edge_index: Tensor, plan: EdgePlan | None) -> Tensor:
    """Σ_j x_j for every node i, [N, C]."""
    if plan is not None and x.dtype in BAG_TYPES and x.device.type == "cpu" and not is_traced(x, edge_index):
        out: Tensor = _BaggedSum.apply(x, plan.sources, plan.target_ptr, plan.targets, plan.source_ptr)
        return out
    return x.new_zeros(x.shape).index_add(0, edge_index[1], x.index_select(0, edge_index[0]))


class _BaggedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x, sources, target_ptr, targets, source_ptr = inputs
        ctx.save_for_backward(targets, source_ptr, sources, target_ptr)
        return _bags(x.contiguous(), sources, target_ptr)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _BaggedSum.apply(grads[0], *ctx.saved_tensors), None, None, None, None


def _bags(rows: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Σ rows[order[p]] for p from ptr[i] to ptr[i + 1], [N, C]."""
    return F.embedding_bag(order, rows, ptr, mode="sum", include_last_offset=True)
