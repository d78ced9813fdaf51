"""Edges of a batch in the order of their targets and in the order of their sources: what sums over edges need.

A sum over the edges that enter a node, or leave it, is then a loop of one program over a stretch of edges: no atomics,
so results repeat bit by bit. Made on the device, without a look at it from the host, once per batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gssc.checks import check_shape


class EdgePlan(NamedTuple):
    """Permutations and starts, int32.

    Position p of the order by targets is edge ``by_target[p]``, which comes from node ``sources[p]``; node i is
    entered by positions ``target_ptr[i]`` to ``target_ptr[i + 1]``. Likewise for the order by sources.
    """

    by_target: Tensor  # [E]
    sources: Tensor  # [E]
    target_ptr: Tensor  # [N + 1]
    by_source: Tensor  # [E]
    targets: Tensor  # [E]
    source_ptr: Tensor  # [N + 1]


def edge_plan(edge_index: Tensor, num_nodes: int, sorted_by_target: bool = False) -> EdgePlan:
    """The plan of ``edge_index`` [2, E]; ``sorted_by_target`` saves one sort where its second row already ascends."""
    check_shape("edge_index", edge_index, 2, None)
    source, target = edge_index.to(torch.int32).contiguous()
    nodes = torch.arange(num_nodes + 1, dtype=torch.int32, device=edge_index.device)
    if sorted_by_target:
        by_target = torch.arange(target.shape[0], dtype=torch.int32, device=edge_index.device)
        sources, keys = source, target
    else:
        keys, order = torch.sort(target, stable=True)
        by_target, sources = order.to(torch.int32), source[order]
    target_ptr = torch.searchsorted(keys, nodes, out_int32=True)
    keys, order = torch.sort(source, stable=True)
    source_ptr = torch.searchsorted(keys, nodes, out_int32=True)
    return EdgePlan(by_target, sources, target_ptr, order.to(torch.int32), target[order], source_ptr)
