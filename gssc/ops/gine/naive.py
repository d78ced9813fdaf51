"""The sum of GINE edge by edge: the judge of every faster form."""

import torch
from torch import Tensor


def gine_messages(x: Tensor, edge_attr: Tensor | None, edge_index: Tensor) -> Tensor:
    """Σ_j ReLU(x_j + e_ij) for every node i, [N, C]."""
    rows = [torch.zeros_like(x[0]) for _ in range(x.shape[0])]
    for edge, (source, target) in enumerate(edge_index.T.tolist()):
        message = x[source] if edge_attr is None else x[source] + edge_attr[edge]
        rows[target] = rows[target] + message.relu()
    return torch.stack(rows) if rows else torch.zeros_like(x)
