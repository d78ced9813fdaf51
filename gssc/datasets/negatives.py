"""Pairs of nodes that are not joined, drawn at random: what link prediction learns 'no' from."""

from typing import cast

import torch
from torch import Tensor

from gssc.datasets.flat import FlatGraphs
from gssc.tasks import Task

ROUNDS = 32  # of drawing what was no negative pair once more: enough unless nearly all pairs are joined


class NegativeSampler:
    """Draws, beside each of the M labelled pairs, a pair of nodes of the same graph as its negative.

    That is a pair of two nodes that is neither an edge nor a labelled pair, nor one of ``known`` `keys`; nor the
    reverse of one, unless ``ordered``. Where a graph has (nearly) none, the draw has an unknown label.
    """

    def __init__(self, graphs: FlatGraphs, ordered: bool, *known: Tensor) -> None:
        self.graphs, self.ordered = graphs, ordered
        self.taken = torch.cat([edge_keys(graphs, ordered), pair_keys(graphs, ordered), *known]).unique()

    def draw(self, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """All pairs and, behind those of each graph, as many negatives, as `GraphStore.replace_pairs` takes them."""
        generator = torch.Generator().manual_seed(seed)
        index, ptr = pairs_of(self.graphs)
        graph = owners(ptr)
        negatives, missing = torch.zeros_like(index), torch.arange(len(graph))
        for _ in range(ROUNDS if len(self.taken) else 0):
            size = self.graphs.ptr.diff()[graph[missing]]
            drawn = (torch.rand(2, len(missing), generator=generator, dtype=torch.float64) * size).long()
            key = keys(drawn, graph[missing], self.graphs.ptr, self.ordered)
            place = torch.searchsorted(self.taken, key).clamp(max=len(self.taken) - 1)
            good = (drawn[0] != drawn[1]) & (self.taken[place] != key)
            negatives[:, missing[good]] = drawn[:, good]
            missing = missing[~good]
        label = torch.zeros_like(self.graphs.y)
        label[missing] = float("nan")
        # Rows of a graph are its pairs, then its negatives.
        first = torch.arange(len(graph)) + ptr[graph]
        order = torch.cat([first, first + ptr.diff()[graph]]).argsort()
        index, y = torch.cat([index, negatives], dim=1), torch.cat([self.graphs.y, label])
        return index[:, order], 2 * ptr, y[order]


def pairs_of(graphs: FlatGraphs) -> tuple[Tensor, Tensor]:
    """``pair_index`` and ``pair_ptr`` of graphs that have them."""
    return cast("Tensor", graphs.pair_index), cast("Tensor", graphs.pair_ptr)


def owners(ptr: Tensor) -> Tensor:
    """The graph of each row, where those of graph g are ``ptr[g]:ptr[g + 1]``."""
    return torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())


def keys(pairs: Tensor, graph: Tensor, ptr: Tensor, ordered: bool = True) -> Tensor:
    """One number for each pair [2, M] of nodes of these graphs [M]; the same for (v, u), unless ``ordered``."""
    ends = pairs if ordered else pairs.sort(dim=0).values
    return (ends[0] + ptr[graph]) * int(ptr.diff().max()) + ends[1]


def edge_keys(graphs: FlatGraphs, ordered: bool = True, back: bool = False) -> Tensor:
    """`keys` of all edges, or of their way back."""
    edges = graphs.edge_index.flip(0) if back else graphs.edge_index
    return keys(edges, owners(graphs.edge_ptr), graphs.ptr, ordered)


def pair_keys(graphs: FlatGraphs, ordered: bool = True) -> Tensor:
    """`keys` of all labelled pairs."""
    index, ptr = pairs_of(graphs)
    return keys(index, owners(ptr), graphs.ptr, ordered)


def are_links(graphs: FlatGraphs, task: Task) -> bool:
    """Whether all labels that are known say yes: then something has to bring the negatives."""
    return (task.level, task.kind, task.outputs) == ("edge", "binary", 1) and not bool((graphs.y == 0).any())


def are_ordered(graphs: FlatGraphs) -> bool:
    """Whether some edges have none in the other direction: then (u, v) and (v, u) are taken for different pairs."""
    return not bool(torch.isin(edge_keys(graphs, back=True), edge_keys(graphs)).all())
