"""Products with states of graphs, and sums over graphs, one graph after another: the judge."""

import torch
from torch import Tensor

from gssc.ops.segments import graph_slices


def to_state(vectors: Tensor, x: Tensor, ptr: Tensor) -> Tensor:
    """U_g = P_gᵀ X_g: vectors [N, K], x [N, C] -> [G, K, C]."""
    states = [torch.einsum("nk,nc->kc", vectors[nodes], x[nodes]) for nodes in graph_slices(ptr)]
    return torch.stack(states) if states else x.new_zeros(0, vectors.shape[1], x.shape[1])


def from_state(vectors: Tensor, state: Tensor, ptr: Tensor) -> Tensor:
    """Y_g = P_g S_g: vectors [N, K], state [G, K, C] -> [N, C]."""
    rows = [torch.einsum("nk,kc->nc", vectors[nodes], state[g]) for g, nodes in enumerate(graph_slices(ptr))]
    return torch.cat(rows) if rows else state.new_zeros(0, state.shape[2])


def segment_sum(x: Tensor, batch: Tensor | None, ptr: Tensor) -> Tensor:
    """s_g = Σ_{v in g} x_v: x [N, C] -> [G, C]."""
    rows = [x[nodes].sum(0) for nodes in graph_slices(ptr)]
    return torch.stack(rows) if rows else x.new_zeros(0, x.shape[1])
