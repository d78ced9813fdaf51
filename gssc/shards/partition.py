"""Which process holds which node: equally many nodes each, and few edges between them.

``"metis"`` asks METIS (the extra ``metis``), ``"propagation"`` improves blocks of an order in which neighbours are
close, and ``"random"`` draws: then nearly every edge is cut, and all is only slower.

Edges are read in chunks, as often as needed, from memory or from a file that is mapped. `propagation` keeps vectors [N]
of them, and of a large graph one of clusters of nodes, which it divides first.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from gssc.checks import check_choice, check_installed, check_positive

Method = Literal["auto", "metis", "propagation", "random"]
METHODS = get_args(Method)
# A part may have so many times the mean number of nodes; rounds end where fewer than this share of nodes move.
SLACK, ROUNDS, FEW = 1.03, 30, 1e-4
CHUNK = 1 << 22  # edges that are looked at together
MOST_EDGES = 1 << 24  # of a graph that is divided as it is; of a larger one clusters are, joined by so many of them
MOST_COUNTS = 1 << 25  # of neighbours of nodes in parts, in a round


class _Graph(NamedTuple):
    """Edges [2, E], which count both ways, between clusters: how many nodes each has, and the cluster of each node."""

    ends: Tensor
    size: Tensor
    cluster: Tensor | None = None  # None where each node is one

    def chunks(self) -> Iterator[Tensor]:
        """Some edges [2, ≤ CHUNK] between clusters after others."""
        for chunk in self.ends.split(CHUNK, dim=1):
            ends = chunk.long() if self.cluster is None else self.cluster[chunk.long()]
            yield ends[:, ends[0] != ends[1]]


def assign_nodes(
    edge_index: Tensor,
    nodes: int,
    ranks: int,
    method: Method = "auto",
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Tensor, str]:
    """The process of every node, [N], and the method: ``"auto"`` is METIS where pymetis is installed, else propagation.

    Edges [2, E] count in both directions. METIS holds all of them, so ``"auto"`` asks it about `MOST_EDGES` at most.
    """
    check_choice("method", method, METHODS)
    check_positive("ranks", ranks)
    if method == "auto":
        small = edge_index.shape[1] <= MOST_EDGES
        method = "metis" if small and find_spec("pymetis") is not None else "propagation"
    elif method == "metis":
        check_installed("method", "pymetis")
    if ranks == 1 or not nodes:
        return torch.zeros(nodes, dtype=torch.int64), method
    graph, generator = _Graph(edge_index, torch.ones(nodes, dtype=torch.int64)), torch.Generator().manual_seed(seed)
    if method == "random":
        return _blocks(graph.size, ranks)[torch.randperm(nodes, generator=generator)], method
    if method == "metis":
        import pymetis

        both = _matrix(graph, 1.0, generator)
        _, part = pymetis.part_graph(ranks, pymetis.CSRAdjacency(both.indptr, both.indices))
        return torch.tensor(part, dtype=torch.int64), method
    return _propagate(graph, ranks, generator, say), method


def _blocks(size: Tensor, ranks: int) -> Tensor:
    """Parts of equal weight of nodes in their order, [N]."""
    before = size.double().cumsum(0) - size
    return (before * ranks / max(float(size.sum()), 1.0)).long().clamp_max(ranks - 1)


def _matrix(graph: _Graph, share: float, generator: torch.Generator) -> sp.csr_array:
    """The symmetric matrix of what is joined, by a share of the edges."""
    some = (chunk[:, torch.rand(chunk.shape[1], generator=generator) < share] for chunk in graph.chunks())
    ends = torch.cat([chunk.int() for chunk in some], 1).numpy()
    whole = sp.coo_array((np.ones(ends.shape[1], dtype=bool), tuple(ends)), (graph.size.numel(),) * 2).tocsr()
    return (whole + whole.T).tocsr()


def _propagate(graph: _Graph, ranks: int, generator: torch.Generator, say: Callable[[str], None]) -> Tensor:
    """Blocks of the order of Cuthill and McKee, or of the given one where they cut fewer edges, then improved.

    Where there are more than `MOST_EDGES` edges, the parts of larger clusters take the place of the former, as long as
    there are more than an eighth as many clusters.
    """
    given, count, edges = _blocks(graph.size, ranks), graph.size.numel(), graph.ends.shape[1]
    number = _joined(graph, ranks, generator) if edges > MOST_EDGES and count > MOST_EDGES // 8 else None
    if number is not None and (larger := int(number.max()) + 1) < 0.9 * count:
        say(f"{larger:,} clusters of {count:,}")
        size = graph.size.new_zeros(larger).index_add(0, number, graph.size)
        cluster = number if graph.cluster is None else number[graph.cluster]
        part = _propagate(_Graph(graph.ends, size, cluster), ranks, generator, say)[number]
    else:
        matrix = _matrix(graph, MOST_EDGES / max(edges, 1), generator)
        order = torch.from_numpy(reverse_cuthill_mckee(matrix, symmetric_mode=True).copy()).long()
        part = torch.empty_like(given).index_copy_(0, order, _blocks(graph.size[order], ranks))
    best = min((part, given), key=lambda one: sum(int((one[a] != one[b]).sum()) for a, b in graph.chunks()))
    return _improve(graph, best, ranks, generator, say)


def _improve(graph: _Graph, part: Tensor, ranks: int, generator: torch.Generator, say: Callable[[str], None]) -> Tensor:
    """Label propagation with a limit of sizes.

    In every round half of the nodes, so that neighbours do not change places for ever, may move to the part in which
    they have more neighbours than in their own: those that gain most first, as long as it has room.
    """
    nodes, edges = graph.size.numel(), max(graph.ends.shape[1], 1)
    most = max(-(-int(graph.size.sum()) // ranks), int(SLACK * int(graph.size.sum()) / ranks))
    for number in range(ROUNDS if edges <= MOST_EDGES else ROUNDS // 5):
        border, crossing = torch.zeros(nodes, dtype=torch.bool), 0
        for chunk in graph.chunks():
            crosses = part[chunk[0]] != part[chunk[1]]
            border[chunk[:, crosses]] = True
            crossing += int(crosses.sum())
        say(f"propagation of {nodes:,} nodes, round {number}: {crossing / edges:.2%} of the edges are cut")
        chosen = border.nonzero().squeeze(1)
        share = min(0.5, MOST_COUNTS / (ranks * max(chosen.numel(), 1)))
        chosen = chosen[torch.rand(chosen.numel(), generator=generator) < share]
        place = torch.full((nodes,), -1, dtype=torch.int32)
        place[chosen] = torch.arange(chosen.numel(), dtype=torch.int32)
        counts = torch.zeros(chosen.numel() * ranks, dtype=torch.int32)  # of neighbours in every part
        for chunk in graph.chunks():
            for here, there in (chunk, chunk.flip(0)):
                row = place[here]
                seen = row >= 0
                cell = row[seen] * ranks + part[there[seen]]
                counts.index_add_(0, cell, torch.ones_like(cell, dtype=torch.int32))
        table = counts.view(-1, ranks)
        gain, best = (table - table.gather(1, part[chosen].unsqueeze(1))).max(1)
        node, gain, best = (rows[gain > 0] for rows in (chosen, gain, best))
        order = torch.from_numpy(np.lexsort((-gain, best)))
        node, best = node[order], best[order]
        upto = graph.size[node].cumsum(0)
        before = torch.cat([upto.new_zeros(1), upto])[torch.searchsorted(best, best)]  # what goes to parts before it
        room = most - graph.size.new_zeros(ranks).index_add(0, part, graph.size)
        moves = upto - before <= room[best]
        part[node[moves]] = best[moves]
        if int(moves.sum()) <= FEW * nodes:
            break
    return part


def _joined(graph: _Graph, ranks: int, generator: torch.Generator) -> Tensor:
    """The larger cluster of every cluster, numbers in the same order: of each with its neighbour of the largest lot.

    A chain of such neighbours ends in two that chose each other; all that come to them are one, unless that is too
    heavy.
    """
    count = graph.size.numel()
    lot, best, own = torch.randperm(count, generator=generator), torch.full((count,), -1), torch.arange(count)
    for ends in graph.chunks():
        best.scatter_reduce_(0, ends.flatten(), lot[ends.flip(0).flatten()], "amax")
    chosen = torch.where(best >= 0, torch.argsort(lot)[best], own)
    root = torch.where((chosen[chosen] == own) & (own < chosen), own, chosen)
    for _ in range(count.bit_length()):
        root = root[root]
    most = max(2, int(graph.size.sum()) // (100 * ranks))
    heavy = graph.size.new_zeros(count).index_add(0, root, graph.size) > most
    return torch.unique(torch.where(heavy[root], own, root), return_inverse=True)[1]
