"""The sum over neighbours in Triton: nothing of size E × C is stored, forward or backward.

    forward     h_i  = Σ_j x_j      over edges in the order of their targets
    backward    ∂x_j = Σ_i ∂h_i     in the order of their sources: the same op

Sums are float32 inside.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.edges.launch import Grid
from gssc.ops.edges.plan import EdgePlan


@torch.library.custom_op("gssc::neighbor_sum_fused", mutates_args=())
def neighbor_sum_fused(x: Tensor, sources: Tensor, target_ptr: Tensor, targets: Tensor, source_ptr: Tensor) -> Tensor:
    """H [N, C]; what follows ``x`` is of an ``EdgePlan``: the last two are what the backward pass sums by."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel():
        from gssc.ops.neighbor_sum import kernels

        grid = Grid(x.shape[0], sources.shape[0], x.shape[1], x.device)
        grid.over_nodes(kernels.sum_of_neighbors, x.contiguous(), sources, target_ptr, out)
    return out


@neighbor_sum_fused.register_fake
def _(x: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    sources, target_ptr, targets, source_ptr = ctx.saved_tensors
    return neighbor_sum_fused(grad, targets, source_ptr, sources, target_ptr), None, None, None, None


neighbor_sum_fused.register_autograd(_backward, setup_context=_setup)


def neighbor_sum(x: Tensor, plan: EdgePlan) -> Tensor:
    """Σ_j x_j for every node i, [N, C]."""
    out: Tensor = neighbor_sum_fused(x, plan.sources, plan.target_ptr, plan.targets, plan.source_ptr)
    return out
