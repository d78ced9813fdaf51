"""The sums of GINE and GCN in Triton: nothing of size E is stored, forward or backward, but the gradient of e.

    forward     h_i  = (1 + ε) x_i + Σ_j ReLU(m_ij),  m_ij = x_j + e_ij     over edges in the order of their targets
    backward    ∂x_j = (1 + ε) ∂h_j + Σ_i [m_ij > 0] ⊙ ∂h_i                in the order of their sources
                ∂e_ij = [m_ij > 0] ⊙ ∂h_i                                   in the order they came

The term with ε is there where an ε is. m is computed anew in each pass. GCN's sum is without e and ReLU, and its own
backward pass over reversed edges. Sums are float32 inside, made by one program in order: no atomics.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.context import EdgePlan
from gssc.ops.edges.launch import Grid
from gssc.ops.gine.naive import gathered_messages
from gssc.ops.op import composed_gradients, op


@op("gssc::gine_messages")
def _messages(
    x: Tensor,
    edge_attr: Tensor | None,
    eps: Tensor | None,
    edge_index: Tensor,
    by_target: Tensor,
    sources: Tensor,
    target_ptr: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
) -> Tensor:
    """H [N, C]; what follows ``edge_index`` is an ``EdgePlan``."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        from gssc.ops.gine import kernels

        grid = Grid(x.shape[0], edge_index.shape[1], x.shape[1], x.device)
        rows = None if edge_attr is None else edge_attr.contiguous()
        tensors = (x.contiguous(), rows, eps, by_target, sources, target_ptr, out)
        grid.over_nodes(kernels.forward_nodes, *tensors, HAS_EDGES=rows is not None, HAS_SELF=eps is not None)
    return out


@_messages.register_fake
def _(x: Tensor, *_: Tensor | None) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@op("gssc::gine_messages_backward")
def _messages_backward(
    grad: Tensor,
    x: Tensor,
    edge_attr: Tensor | None,
    eps: Tensor | None,
    edge_index: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
    need_edges: bool,
) -> list[Tensor]:
    """∂x and, where needed, ∂e."""
    gradients = _empty_gradients(grad, x, edge_attr, need_edges)
    if x.numel():
        from gssc.ops.gine import kernels

        grid = Grid(x.shape[0], edge_index.shape[1], x.shape[1], x.device)
        rows = None if edge_attr is None else edge_attr.contiguous()
        tensors = (x.contiguous(), rows, grad.contiguous())
        flags = {"HAS_EDGES": rows is not None, "HAS_SELF": eps is not None}
        grid.over_nodes(kernels.backward_nodes, *tensors, eps, by_source, targets, source_ptr, gradients[0], **flags)
        if need_edges and grid.edges:
            grid.over_rows(kernels.backward_edges, grid.edges, *tensors, edge_index.contiguous(), gradients[1])
    return gradients


@_messages_backward.register_fake
def _empty_gradients(grad: Tensor, x: Tensor, edge_attr: Tensor | None, *rest: Any) -> list[Tensor]:
    need_edges = rest[-1]
    like = [x] if edge_attr is None or not need_edges else [x, edge_attr]
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, edge_attr, eps, edge_index, _, _, _, *by_source = inputs
    ctx.save_for_backward(x, edge_attr, eps, edge_index, *by_source)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, edge_attr, eps, edge_index, *by_source = ctx.saved_tensors
    needed = ctx.needs_input_grad
    if torch.is_grad_enabled():  # somebody will differentiate the result
        inputs = (x, edge_attr, eps, edge_index)
        return *composed_gradients(gathered_messages, inputs, needed[:4], grad), *[None] * 6
    gradients = _messages_backward(grad, x, edge_attr, eps, edge_index, *by_source, needed[1])
    d_eps = (grad * x).sum(dtype=torch.float32).to(eps.dtype).view_as(eps) if needed[2] else None
    return gradients[0], gradients[1] if needed[1] else None, d_eps, *[None] * 7


_messages.register_autograd(_backward, setup_context=_setup)


def gine_messages(
    x: Tensor, edge_attr: Tensor | None, edge_index: Tensor, plan: EdgePlan, eps: Tensor | None
) -> Tensor:
    """(1 + ε) x_i + Σ_j ReLU(x_j + e_ij) for every node i, [N, C]."""
    if edge_attr is not None and edge_attr.dtype != x.dtype:
        edge_attr = edge_attr.to(x.dtype)
    out: Tensor = _messages(x, edge_attr, eps, edge_index, *plan)
    return out


@op("gssc::neighbor_sum")
def _sum(x: Tensor, sources: Tensor, target_ptr: Tensor, targets: Tensor, source_ptr: Tensor) -> Tensor:
    """H [N, C]; what follows ``x`` is of an ``EdgePlan``: the last two are what the backward pass sums by."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        from gssc.ops.gine import kernels

        grid = Grid(x.shape[0], sources.shape[0], x.shape[1], x.device)
        grid.over_nodes(kernels.sum_of_neighbors, x.contiguous(), sources, target_ptr, out)
    return out


@_sum.register_fake
def _(x: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup_sum(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward_sum(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    sources, target_ptr, targets, source_ptr = ctx.saved_tensors
    return _sum(grad, targets, source_ptr, sources, target_ptr), None, None, None, None


_sum.register_autograd(_backward_sum, setup_context=_setup_sum)


def neighbor_sum(x: Tensor, plan: EdgePlan) -> Tensor:
    """Σ_j x_j for every node i, [N, C]."""
    out: Tensor = _sum(x, plan.sources, plan.target_ptr, plan.targets, plan.source_ptr)
    return out
