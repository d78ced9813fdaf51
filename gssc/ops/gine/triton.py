"""GINE's messages in Triton: nothing of size E is stored, forward or backward, but the gradient of edge features.

    forward     h_i  = (1 + ε) x_i + Σ_j ReLU(m_ij),  m_ij = x_j + e_ij     over edges in the order of their targets
    backward    ∂x_j = (1 + ε) ∂h_j + Σ_i [m_ij > 0] ⊙ ∂h_i                in the order of their sources
                ∂e_ij = [m_ij > 0] ⊙ ∂h_i                      in the order they came

The term with ε is there where an ε is. m is computed anew in each pass. Where the backward pass is itself to be
differentiated, it is made of PyTorch's ops.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.edges.launch import Grid
from gssc.ops.edges.plan import EdgePlan


@torch.library.custom_op("gssc::gine_fused", mutates_args=())
def gine_fused(
    x: Tensor,
    edge_attr: Tensor | None,
    edge_index: Tensor,
    by_target: Tensor,
    sources: Tensor,
    target_ptr: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
    eps: Tensor | None = None,
) -> Tensor:
    """H [N, C]; what follows ``edge_index`` is an ``EdgePlan``, then ε, which is not differentiated."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        from gssc.ops.gine import kernels

        grid = Grid(x.shape[0], edge_index.shape[1], x.shape[1], x.device)
        rows = None if edge_attr is None else edge_attr.contiguous()
        tensors = (x.contiguous(), rows, eps, by_target, sources, target_ptr, out)
        grid.over_nodes(kernels.forward_nodes, *tensors, HAS_EDGES=rows is not None, HAS_SELF=eps is not None)
    return out


@gine_fused.register_fake
def _(x: Tensor, *_: Tensor | None) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("gssc::gine_fused_backward", mutates_args=())
def gine_fused_backward(
    grad: Tensor,
    x: Tensor,
    edge_attr: Tensor | None,
    edge_index: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
    eps: Tensor | None,
    need_edges: bool,
) -> list[Tensor]:
    """∂x and, where needed, ∂e."""
    d_x = torch.empty_like(x, memory_format=torch.contiguous_format)
    found = [d_x]
    if edge_attr is not None and need_edges:
        found.append(torch.empty_like(edge_attr, memory_format=torch.contiguous_format))
    if x.numel():
        from gssc.ops.gine import kernels

        grid = Grid(x.shape[0], edge_index.shape[1], x.shape[1], x.device)
        rows = None if edge_attr is None else edge_attr.contiguous()
        tensors = (x.contiguous(), rows, grad.contiguous())
        flags = {"HAS_EDGES": rows is not None, "HAS_SELF": eps is not None}
        grid.over_nodes(kernels.backward_nodes, *tensors, eps, by_source, targets, source_ptr, d_x, **flags)
        if len(found) == 2 and grid.edges:
            grid.over_rows(kernels.backward_edges, grid.edges, *tensors, edge_index.contiguous(), found[1])
    return found


@gine_fused_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    edge_attr: Tensor | None,
    edge_index: Tensor,
    by_source: Tensor,
    targets: Tensor,
    source_ptr: Tensor,
    eps: Tensor | None,
    need_edges: bool,
) -> list[Tensor]:
    like = [x] if edge_attr is None or not need_edges else [x, edge_attr]
    return [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in like]


def _setup(ctx: Any, inputs: tuple[Tensor | None, ...], output: Tensor) -> None:
    x, edge_attr, edge_index, _, _, _, *by_source = inputs
    ctx.save_for_backward(x, edge_attr, edge_index, *by_source)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, edge_attr, edge_index, by_source, targets, source_ptr, eps = ctx.saved_tensors
    need_edges = ctx.needs_input_grad[1]
    if torch.is_grad_enabled():  # somebody will differentiate the result
        found = _eager_gradients(grad, x, edge_attr, edge_index)
        found[0] = found[0] if eps is None else found[0] + (1 + eps) * grad
    else:
        found = gine_fused_backward(grad, x, edge_attr, edge_index, by_source, targets, source_ptr, eps, need_edges)
    return found[0], found[1] if need_edges else None, *[None] * 8


def _eager_gradients(grad: Tensor, x: Tensor, edge_attr: Tensor | None, edge_index: Tensor) -> list[Tensor]:
    message = x[edge_index[0]] if edge_attr is None else x[edge_index[0]] + edge_attr
    change = torch.where(message > 0, grad[edge_index[1]], 0.0)
    return [torch.zeros_like(x).index_add(0, edge_index[0], change.to(x.dtype)), change]


gine_fused.register_autograd(_backward, setup_context=_setup)


def gine_messages(
    x: Tensor, edge_attr: Tensor | None, edge_index: Tensor, plan: EdgePlan, eps: Tensor | None = None
) -> Tensor:
    """Σ_j ReLU(x_j + e_ij) for every node i, plus (1 + ε) x_i where there is an ε, [N, C]."""
    if edge_attr is not None and edge_attr.dtype != x.dtype:
        edge_attr = edge_attr.to(x.dtype)
    out: Tensor = gine_fused(x, edge_attr, edge_index, *plan, eps)
    return out
