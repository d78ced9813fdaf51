"""The sum over neighbours edge by edge: the judge of every faster form."""

import torch
from torch import Tensor


def neighbor_sum(x: Tensor, edge_index: Tensor) -> Tensor:
    """Σ_j x_j for every node i, [N, C]."""
    rows = [torch.zeros_like(x[0]) for _ in range(x.shape[0])]
    for source, target in edge_index.T.tolist():
        rows[target] = rows[target] + x[source]
    return torch.stack(rows) if rows else torch.zeros_like(x)
