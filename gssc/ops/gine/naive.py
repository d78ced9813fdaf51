"""The sums of GINE and GCN edge by edge, the judge; and operation by operation, what second derivatives are made of."""

import torch
from torch import Tensor


def gine_messages(x: Tensor, edge_attr: Tensor | None, edge_index: Tensor, eps: Tensor | None = None) -> Tensor:
    """(1 + ε) x_i + Σ_j ReLU(x_j + e_ij) for every node i, [N, C]."""
    sources = x[edge_index[0]] if edge_attr is None else x[edge_index[0]] + edge_attr
    total = _summed(x, sources.relu(), edge_index[1])
    return total if eps is None else (1 + eps) * x + total


def neighbor_sum(x: Tensor, edge_index: Tensor) -> Tensor:
    """Σ_j x_j for every node i, [N, C]."""
    return _summed(x, x[edge_index[0]], edge_index[1])


def _summed(x: Tensor, messages: Tensor, targets: Tensor) -> Tensor:
    rows = [torch.zeros_like(row) for row in x]
    for message, target in zip(messages, targets.tolist(), strict=True):
        rows[target] = rows[target] + message
    return torch.stack(rows) if rows else torch.zeros_like(x)


def gathered_messages(x: Tensor, edge_attr: Tensor | None, eps: Tensor | None, edge_index: Tensor) -> Tensor:
    """GINE's sum operation by operation: three tensors [E, C]."""
    message = x.index_select(0, edge_index[0])
    if edge_attr is not None:
        message = message + edge_attr
    total = x.new_zeros(x.shape).index_add(0, edge_index[1], message.relu())
    return total if eps is None else total + (1 + eps) * x
