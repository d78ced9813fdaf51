"""Node features of every graph as one row."""

import torch
from torch import Tensor

from gssc.ops.graph_sums import segment_sum


def graph_pool(x: Tensor, batch: Tensor | None, ptr: Tensor, how: str) -> Tensor:
    """``"sum"``, ``"mean"`` or ``"max"`` over the nodes of every graph, [G, C]; zero for a graph without nodes.

    Sums are made in a fixed order, so that results repeat bit by bit on a GPU too.
    """
    if how == "max":
        zeros = x.new_zeros(ptr.shape[0] - 1, x.shape[1])
        if batch is None:
            return x.amax(0, keepdim=True) if x.shape[0] else zeros
        return zeros.scatter_reduce(0, batch.unsqueeze(1).expand_as(x), x, "amax", include_self=False)
    total = segment_sum(x, batch, ptr)
    return total if how == "sum" else total / torch.diff(ptr).clamp(min=1).unsqueeze(1).to(x.dtype)
