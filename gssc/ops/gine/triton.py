"""The sums of GINE and GCN in Triton: nothing of size E is stored, forward or backward, but the gradient of e.

    forward     h_i  = (1 + ε) x_i + Σ_j ReLU(m_ij),  m_ij = x_j + e_ij     over edges in the order of their targets
    backward    ∂x_j = (1 + ε) ∂h_j + Σ_i ∂e_ij,  ∂e_ij = [m_ij > 0] ⊙ ∂h_i  in the order of their sources

The term with ε is there where an ε is. m is computed anew in each pass. GCN's sum is without e and ReLU, and its own
backward pass over reversed edges. Sums are float32 inside, made by one program in order: no atomics.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gssc.ops.edges.launch import Grid
from gssc.ops.gine.naive import gathered_messages
from gssc.ops.launch import contiguous, kernels_of
from gssc.ops.op import composed_gradients, empty_like, op


@op("gssc::gine_messages", fake=empty_like)
def gine_messages(
    x: Tensor, edge_attr: Tensor | None, eps: Tensor | None, edge_index: Tensor,
    by_target: Tensor, sources: Tensor, target_ptr: Tensor, by_source: Tensor, targets: Tensor, source_ptr: Tensor,
) -> Tensor:  # fmt: skip
    """(1 + ε) x_i + Σ_j ReLU(x_j + e_ij) for every node i, [N, C]; what follows ``edge_index`` is an ``EdgePlan``."""
    out = empty_like(x)
    if x.numel():
        kernels = kernels_of("gine")
        grid = Grid(x.shape[0], edge_index.shape[1], x.shape[1], x.device)
        features = contiguous(x, edge_attr)
        grid.over_nodes(kernels.forward_nodes, *features, eps, by_target, sources, target_ptr, out, RELU=True)
    return out


@op("gssc::gine_messages_backward")
def gine_messages_backward(grad: Tensor, saved: Sequence[Tensor | None], need_edges: bool) -> list[Tensor]:
    """∂x and, where needed, ∂e."""
    tensors: Any = saved
    x, edge_attr, eps, edge_index, *by_source = tensors
    gradients = _empty_gradients(grad, saved, need_edges)
    if x.numel():
        kernels = kernels_of("gine")
        grid = Grid(x.shape[0], edge_index.shape[1], x.shape[1], x.device)
        features = contiguous(x, edge_attr, grad)
        d_x, d_attr = gradients if need_edges else (*gradients, None)
        grid.over_nodes(kernels.backward_nodes, *features, eps, *by_source, d_x, d_attr)
    return gradients


@gine_messages_backward.register_fake
def _empty_gradients(grad: Tensor, saved: Sequence[Any], need_edges: bool) -> list[Tensor]:
    return [empty_like(tensor) for tensor in saved[: 1 + need_edges]]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4], *inputs[7:])  # the order of edges by their sources is what backward needs


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, _, eps, *_ = inputs = ctx.saved_tensors
    needed = ctx.needs_input_grad
    if torch.is_grad_enabled():  # somebody will differentiate the result
        return composed_gradients(gathered_messages, inputs[:4], needed, grad)
    d_x, *d_edges = gine_messages_backward(grad, inputs, needed[1])
    d_eps = (grad * x).sum(dtype=torch.float32).to(eps.dtype).view_as(eps) if needed[2] else None
    return d_x, d_edges[0] if d_edges else None, d_eps, *[None] * 7


gine_messages.register_autograd(_backward, setup_context=_setup)


@op("gssc::neighbor_sum", fake=empty_like)
def neighbor_sum(x: Tensor, sources: Tensor, target_ptr: Tensor, targets: Tensor, source_ptr: Tensor) -> Tensor:
    """Σ_j x_j for every node i, [N, C]; of an ``EdgePlan``, the last two are what the backward pass sums by."""
    out = empty_like(x)
    if x.numel():
        kernels = kernels_of("gine")
        grid = Grid(x.shape[0], sources.shape[0], x.shape[1], x.device)
        tensors = (x.contiguous(), None, None, None, sources, target_ptr, out)
        grid.over_nodes(kernels.forward_nodes, *tensors, RELU=False)
    return out


def _setup_sum(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward_sum(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    sources, target_ptr, targets, source_ptr = ctx.saved_tensors
    return neighbor_sum(grad, targets, source_ptr, sources, target_ptr), None, None, None, None


neighbor_sum.register_autograd(_backward_sum, setup_context=_setup_sum)
