"""The selective scan node by node: the judge of the others."""

import torch
from torch import Tensor

from gssc.ops.segments import graph_slices


def selective_scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor) -> Tensor:
    """H = exp(δ_t A) ⊙ h + (δ_t u_t) b_tᵀ, y_t = h c_t, with h = 0 where a graph begins."""
    rows = []
    for nodes in graph_slices(ptr):
        h = torch.zeros_like(a)
        for t in range(nodes.start, nodes.stop):
            h = torch.exp(delta[t, :, None] * a) * h + (delta[t] * u[t])[:, None] * b[t]
            rows.append(h @ c[t])
    return torch.stack(rows) if rows else torch.zeros_like(u)
