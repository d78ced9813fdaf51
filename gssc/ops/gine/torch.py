"""The sum of GINE by gathering and adding rows: one tensor [E, C] after another."""

from torch import Tensor


def gine_messages(x: Tensor, edge_attr: Tensor | None, edge_index: Tensor) -> Tensor:
    """Σ_j ReLU(x_j + e_ij) for every node i, [N, C]."""
    message = x.index_select(0, edge_index[0])
    if edge_attr is not None:
        message = message + edge_attr
    return x.new_zeros(x.shape).index_add(0, edge_index[1], message.relu().to(x.dtype))
