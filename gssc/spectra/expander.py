"""Expander graphs: sparse edges through which every node of a graph is a few steps from every other."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from gssc.checks import fail


@dataclass(eq=False)
class ExpanderGraph(BaseTransform):
    """Attach a random regular graph ``data.expander [N, degree / 2]``: for each node, which ones it is joined to.

    Column r is a random permutation of the nodes of the graph, numbered from 0, and stands for edges in both
    directions: nearly all such graphs are expanders (Friedman). It depends on the number of nodes and on these alone.

    Args:
        degree: Of every node, counting loops and repetitions, of which there are a few; even.
        seed: Of the permutations.
    """

    degree: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        if self.degree < 2 or self.degree % 2:
            fail("degree", "an even number from 2", self.degree)

    def forward(self, data: Any) -> Data:
        device = None if data.edge_index is None else data.edge_index.device
        data.expander = self.rows(torch.tensor([data.num_nodes])).to(device)
        return data

    def rows(self, counts: Tensor) -> Tensor:
        """Of graphs with so many nodes, end to end: [N, degree / 2]."""
        parts = [_permutations(nodes, self.degree // 2, self.seed) for nodes in counts.tolist()]
        return torch.cat(parts) if parts else torch.empty(0, self.degree // 2, dtype=torch.int64)


def _permutations(nodes: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(nodes, generator=generator) for _ in range(count)], dim=1)
