"""The sum over neighbours by gathering and adding rows."""

from torch import Tensor


def neighbor_sum(x: Tensor, edge_index: Tensor) -> Tensor:
    """Σ_j x_j for every node i, [N, C]."""
    return x.new_zeros(x.shape).index_add(0, edge_index[1], x.index_select(0, edge_index[0]))
