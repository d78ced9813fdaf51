"""The sum of GINE on a CPU, over edges whose order by targets and by sources is known.

    m_p = ReLU(x_j + e_ij)      h_i = Σ m_p                              over edges p from j to i
    ∂m_p = [m_p > 0] ∂h_i       ∂x_j = Σ ∂m_p     ∂e_p = ∂m_p

A sum over the edges of a node is a bag of rows (``embedding_bag``), several times faster than adding rows one by one.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.edges.plan import EdgePlan
from gssc.ops.plain import is_plain_cpu

DTYPES = (torch.float32, torch.float64)  # that bags are made of


def fits(x: Tensor, edge_attr: Tensor | None, edge_index: Tensor) -> bool:
    """Whether this form can stand for the eager one."""
    same = edge_attr is None or edge_attr.dtype == x.dtype
    return same and x.dtype in DTYPES and is_plain_cpu(x, edge_attr, edge_index)


class _Messages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, edge_attr: Tensor | None, edge_index: Tensor, *plan: Tensor) -> Tensor:
        order = EdgePlan(*plan)
        message = x.index_select(0, edge_index[0])
        if edge_attr is not None:
            message.add_(edge_attr)
        message.relu_()
        ctx.save_for_backward(x, edge_index, message, order.by_source, order.source_ptr)
        return bags(message, order.by_target, order.target_ptr)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, edge_index, message, by_source, source_ptr = ctx.saved_tensors
        change = grads[0].index_select(0, edge_index[1])
        if torch.is_grad_enabled():  # somebody will differentiate the result
            change = change * (message > 0).to(change.dtype)
            d_x = torch.zeros_like(x).index_add(0, edge_index[0], change)
        else:
            change = torch.ops.aten.threshold_backward(change, message, 0)
            d_x = bags(change, by_source, source_ptr)
        return d_x, change if ctx.needs_input_grad[1] else None, *[None] * 7


def bags(rows: Tensor, order: Tensor, ptr: Tensor) -> Tensor:
    """Σ rows[order[p]] for p from ptr[i] to ptr[i + 1], [N, C]."""
    return F.embedding_bag(order, rows, ptr, mode="sum", include_last_offset=True)


def gine_messages(x: Tensor, edge_attr: Tensor | None, edge_index: Tensor, plan: EdgePlan) -> Tensor:
    """Σ_j ReLU(x_j + e_ij) for every node i, [N, C]."""
    out: Tensor = _Messages.apply(x, edge_attr, edge_index, *plan)
    return out
