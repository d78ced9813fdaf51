"""Linear attention within each graph of a packed batch, many heads, no padding and no product of size n².

    Y_v = Σ_{w in the graph of v} (q_v · k_w) v_w = q_v (Kᵀ V)

The heads of a graph stand as graphs of their own, one head after the other, for the products of ``graph_sums``.
"""

import torch
from torch import Tensor

from gssc.ops.graph_sums import from_state, to_state


def linear_attention(q: Tensor, k: Tensor, v: Tensor, ptr: Tensor) -> Tensor:
    """q, k [N, heads, M], v [N, heads, D], ptr [G + 1] -> Y [N, heads, D], float32 for half precision."""
    nodes, heads = q.shape[:2]
    q, k, v = (rows.transpose(0, 1).flatten(0, 1) for rows in (q, k, v))
    first = torch.arange(heads + 1, device=ptr.device) * nodes
    ptr = torch.cat([(first[:-1, None] + ptr[:-1]).flatten(), first[-1:]])
    return from_state(q, to_state(k, v, ptr), ptr).unflatten(0, (heads, nodes)).transpose(0, 1)


def normalized_linear_attention(q: Tensor, k: Tensor, v: Tensor, ptr: Tensor, least: float = 1e-6) -> Tensor:
    """The same with weights that sum to 1, Y_v / Σ_w q_v · k_w, for features q and k that are not negative."""
    both = linear_attention(q, k, torch.cat([v, torch.ones_like(v[..., :1])], dim=2), ptr)
    return both[..., :-1] / both[..., -1:].clamp(min=least)
