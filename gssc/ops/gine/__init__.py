"""Sums over the neighbours of a node: what GINE and GCN do on edges.

With PyTorch's ops, on a CPU, over edges whose order by targets and by sources is known, the sum over the edges of a
node is a bag of rows (``embedding_bag``), several times faster than adding rows one by one. ``triton.py`` has the
equations of both passes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_shape
from gssc.ops.context import EdgePlan, edge_plan
from gssc.ops.gine import naive, triton
from gssc.ops.gine.naive import gathered_messages
from gssc.ops.op import composed_gradients, is_traced
from gssc.ops.triton_support import chosen

__all__ = ["gine_messages", "neighbor_sum"]

BAG_TYPES = (torch.float32, torch.float64)


def gine_messages(
    x: Tensor,
    edge_attr: Tensor | None,
    edge_index: Tensor,
    plan: EdgePlan | None = None,
    backend: str = "auto",
    eps: Tensor | None = None,
) -> Tensor:
    r"""What GINE sums: :math:`h_i = (1 + \epsilon) x_i + \sum_j \mathrm{ReLU}(x_j + e_{ij})` over edges from j to i.

    Args:
        x: Node features, [N, C].
        edge_attr: Edge features, [E, C], or ``None`` for zeros.
        edge_index: Edges, [2, E], in any order.
        plan: ``edge_plan(edge_index, N)``, if there is one already. The kernels need it, and make it else; on a CPU
            sums are faster with it.
        backend: ``"naive"`` (edge by edge), ``"torch"``, ``"triton"`` (nothing of size E × C is stored but the gradient
            of e; results repeat bit by bit), or ``"auto"``: triton where it can be, else torch.
        eps: ε, one number; ``None`` leaves (1 + ε) x_i out.

    Returns:
        h, [N, C].
    """
    if edge_attr is not None and edge_attr.shape != (edge_index.shape[-1], x.shape[-1]):
        check_shape("edge_attr", edge_attr, edge_index.shape[-1], x.shape[-1])
    # On a CPU "auto" stays, and means torch.
    if backend != "auto" or x.is_cuda or x.dim() != 2 or edge_index.dim() != 2 or edge_index.shape[0] != 2:
        backend = _chosen(backend, x, edge_index, edge_attr)
    if backend == "naive":
        return naive.gine_messages(x, edge_attr, edge_index, eps)
    if edge_attr is not None and edge_attr.dtype != x.dtype:
        edge_attr = edge_attr.to(x.dtype)
    if backend == "triton":
        plan = edge_plan(edge_index, x.shape[0]) if plan is None else plan
        return triton.gine_messages(x, edge_attr, eps, edge_index, *plan)
    if plan is None or x.device.type != "cpu" or x.dtype not in BAG_TYPES or is_traced(x, edge_attr, edge_index):
        return gathered_messages(x, edge_attr, eps, edge_index)
    return _BaggedMessages.apply(x, edge_attr, eps, edge_index, *plan)


def neighbor_sum(x: Tensor, edge_index: Tensor, plan: EdgePlan | None = None, backend: str = "auto") -> Tensor:
    r"""What GCN sums: :math:`h_i = \sum_j x_j` over edges from j to i.

    Its gradient is the same sum over the reversed edges. Arguments and result as of `gine_messages`.
    """
    backend = _chosen(backend, x, edge_index)
    if backend == "naive":
        return naive.neighbor_sum(x, edge_index)
    if backend == "triton":
        plan = edge_plan(edge_index, x.shape[0]) if plan is None else plan
    elif plan is None or x.device.type != "cpu" or x.dtype not in BAG_TYPES or is_traced(x, edge_index):
        return x.new_zeros(x.shape).index_add(0, edge_index[1], x.index_select(0, edge_index[0]))
    total = triton.neighbor_sum if backend == "triton" else _BaggedSum.apply
    return total(x, plan.sources, plan.target_ptr, plan.targets, plan.source_ptr)


def _chosen(backend: str, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> str:
    """The backend, after checks."""
    if x.dim() != 2:
        check_shape("x", x, None, None)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        check_shape("edge_index", edge_index, 2, None)
    return chosen(backend, x=x, edge_attr=edge_attr)


class _BaggedMessages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x, edge_attr, eps, edge_index, by_target, _, target_ptr, by_source, _, source_ptr = inputs
        message = x.index_select(0, edge_index[0])
        if edge_attr is not None:
            message.add_(edge_attr)
        message.relu_()
        ctx.save_for_backward(x, edge_attr, eps, edge_index, message, by_source, source_ptr)
        total = F.embedding_bag(by_target, message, target_ptr, mode="sum", include_last_offset=True)
        return total if eps is None else total.addcmul_(x, 1 + eps)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        x, edge_attr, eps, edge_index, message, by_source, source_ptr = ctx.saved_tensors
        needed = ctx.needs_input_grad
        if torch.is_grad_enabled():  # somebody will differentiate the result
            inputs = (x, edge_attr, eps, edge_index)
            return composed_gradients(gathered_messages, inputs, needed, grad)
        change = torch.ops.aten.threshold_backward(grad.index_select(0, edge_index[1]), message, 0)
        d_x = d_eps = None
        if needed[0]:
            d_x = F.embedding_bag(by_source, change, source_ptr, mode="sum", include_last_offset=True)
        if eps is not None:
            d_x = None if d_x is None else d_x.addcmul_(grad, 1 + eps)
            d_eps = (grad * x).sum().view_as(eps) if needed[2] else None
        return d_x, change if needed[1] else None, d_eps, *[None] * 7


class _BaggedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x, sources, target_ptr, targets, source_ptr = inputs
        ctx.save_for_backward(targets, source_ptr, sources, target_ptr)
        return F.embedding_bag(sources, x.contiguous(), target_ptr, mode="sum", include_last_offset=True)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return _BaggedSum.apply(grads[0], *ctx.saved_tensors), None, None, None, None
