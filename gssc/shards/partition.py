"""Which process holds which node: equally many nodes each, and few edges between them.

``"metis"`` asks METIS (the extra ``metis``), ``"propagation"`` improves blocks of an order in which neighbours are
close, and ``"random"`` draws: then nearly every edge is cut, and all is only slower.

Edges are read in chunks, as often as needed, from memory or from a file that is mapped. `propagation` keeps vectors [N]
of them, and of a large graph one of clusters of nodes, which it divides first.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Literal, NamedTuple, get_args

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
MOST_EDGES = 1 << 24  # of a graph that is divided as it is, without clusters
MOST_PAIRS = 1 << 23  # of clusters that are remembered; of more, a sample
MOST_COUNTS = 1 << 25  # of neighbours of nodes in parts, in a round


class _Weighted(NamedTuple):
    """Nodes with weights [N], and joined pairs of them [2, E] with weights [E]; None for ones."""

    size: Tensor
    ends: Tensor
    weight: Tensor | None = None

    def chunks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Both ends and the weights of some pairs after others, loops left out."""
        for number, chunk in enumerate(self.ends.split(CHUNK, dim=1)):
            joined = chunk[0] != chunk[1]
            a, b = chunk[:, joined].long()
            first = number * CHUNK
            some = torch.ones_like(a, dtype=torch.int32) if self.weight is None else self.weight[first : first + CHUNK]
            yield a, b, some if self.weight is None else some[joined]


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
    if method == "random":
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
        return torch.empty(nodes, dtype=torch.int64).index_copy_(0, order, _blocks(torch.ones(nodes), ranks)), method
    graph = _Weighted(torch.ones(nodes, dtype=torch.int32), edge_index)
    if method == "metis":
        import pymetis

        both = _matrix(graph)
        _, part = pymetis.part_graph(ranks, xadj=both.indptr, adjncy=both.indices)
        return torch.tensor(part, dtype=torch.int64), method
    return _propagate(graph, ranks, torch.Generator().manual_seed(seed), say), method


def _blocks(size: Tensor, ranks: int) -> Tensor:
    """Parts of equal weight of nodes in their order, [N]."""
    before = size.double().cumsum(0) - size
    return (before * ranks / max(float(size.sum()), 1.0)).long().clamp_max(ranks - 1)


def _matrix(graph: _Weighted) -> sp.csr_array:
    """The symmetric matrix of what is joined."""
    nodes, ends = graph.size.numel(), torch.cat([torch.stack([a, b]) for a, b, _ in graph.chunks()], 1).int().numpy()
    whole = sp.coo_array((torch.ones(ends.shape[1], dtype=torch.bool).numpy(), tuple(ends)), (nodes, nodes)).tocsr()
    return (whole + whole.T).tocsr()


def _propagate(graph: _Weighted, ranks: int, generator: torch.Generator, say: Callable[[str], None]) -> Tensor:
    """Blocks of the order of Cuthill and McKee, or of the given one where they cut fewer edges, then improved.

    Of more than `MOST_EDGES` edges, blocks of clusters, improved before their nodes are.
    """
    given = _blocks(graph.size, ranks)
    part = torch.empty_like(given)
    if graph.ends.shape[1] > MOST_EDGES:
        cluster, coarse = _coarsen(graph, ranks, generator, say)
        part = _propagate(coarse, ranks, generator, say)[cluster]
    else:
        order = torch.from_numpy(reverse_cuthill_mckee(_matrix(graph), symmetric_mode=True).copy()).long()
        part[order] = _blocks(graph.size[order], ranks)
    return _improve(graph, min((part, given), key=lambda one: _cut(graph, one)), ranks, generator, say)


def _cut(graph: _Weighted, part: Tensor) -> int:
    """The weight of pairs between parts."""
    return sum(int(weight[part[a] != part[b]].sum()) for a, b, weight in graph.chunks())


def _improve(
    graph: _Weighted, part: Tensor, ranks: int, generator: torch.Generator, say: Callable[[str], None]
) -> Tensor:
    """Label propagation with a limit of sizes.

    In every round half of the nodes, so that neighbours do not change places for ever, may move to the part in which
    they have more neighbours than in their own: those that gain most first, as long as it has room.
    """
    nodes, edges = part.numel(), max(graph.ends.shape[1], 1)
    whole = max(1, sum(int(weight.sum()) for *_, weight in graph.chunks()))
    most = max(-(-int(graph.size.sum()) // ranks), int(SLACK * int(graph.size.sum()) / ranks))
    for number in range(ROUNDS if edges <= MOST_EDGES else ROUNDS // 5):
        border, crossing = torch.zeros(nodes, dtype=torch.bool), 0
        for a, b, weight in graph.chunks():
            crosses = part[a] != part[b]
            border[a[crosses]] = border[b[crosses]] = True
            crossing += int(weight[crosses].sum())
        say(f"propagation of {nodes:,} nodes, round {number}: {crossing / whole:.2%} of the edges are cut")
        chosen = border.nonzero().squeeze(1)
        share = min(0.5, MOST_COUNTS / (ranks * max(chosen.numel(), 1)))
        chosen = chosen[torch.rand(chosen.numel(), generator=generator) < share]
        place = torch.full((nodes,), -1, dtype=torch.int32)
        place[chosen] = torch.arange(chosen.numel(), dtype=torch.int32)
        counts = torch.zeros(chosen.numel() * ranks, dtype=torch.int32)  # of neighbours in every part
        for a, b, weight in graph.chunks():
            for here, there in ((a, b), (b, a)):
                row = place[here]
                seen = row >= 0
                counts.index_add_(0, row[seen].long() * ranks + part[there[seen]], weight[seen])
        table = counts.view(-1, ranks)
        gain, best = (table - table.gather(1, part[chosen].unsqueeze(1))).max(1)
        node, gain, best = (rows[gain > 0] for rows in (chosen, gain, best))
        order = torch.argsort(gain, descending=True, stable=True)
        order = order[torch.argsort(best[order], stable=True)]
        node, best = node[order], best[order]
        coming = graph.size[node].long()
        upto = coming.cumsum(0)
        before = torch.cat([upto.new_zeros(1), upto])[torch.searchsorted(best, best)]  # what went to parts before it
        room = most - torch.zeros(ranks, dtype=torch.int64).index_add(0, part, graph.size.long())
        moves = upto - before <= room[best]
        part[node[moves]] = best[moves]
        if int(moves.sum()) <= FEW * nodes:
            break
    return part


def _coarsen(
    graph: _Weighted, ranks: int, generator: torch.Generator, say: Callable[[str], None]
) -> tuple[Tensor, _Weighted]:
    """The cluster of every node, [N], and the graph of clusters, few enough that a part has thousands of them.

    In every round each cluster joins the neighbour at its edge of the largest random number (Borůvka): all of a tree
    become one, unless it is too heavy.
    """
    nodes = graph.size.numel()
    cluster, size, most = torch.arange(nodes), graph.size.long(), max(2, nodes // (100 * ranks))
    while size.numel() > MOST_EDGES // 8:
        count, salt = size.numel(), int(torch.randint(1 << 62, (1,), generator=generator))
        best = torch.full((count,), -1, dtype=torch.int64)  # random number of the edge, then the neighbour
        for a, b, _ in graph.chunks():
            a, b = cluster[a], cluster[b]
            a, b = a[a != b], b[a != b]
            drawn = _drawn(torch.minimum(a, b) * count + torch.maximum(a, b), salt) << 32
            best.scatter_reduce_(0, a, drawn | b, "amax").scatter_reduce_(0, b, drawn | a, "amax")
        own = torch.arange(count)
        joined = torch.where(best >= 0, best & 0xFFFFFFFF, own)
        joined = torch.where((joined[joined] == own) & (own < joined), own, joined)  # of two that chose each other
        for _ in range(count.bit_length()):
            before, joined = joined, joined[joined]
            if torch.equal(before, joined):
                break
        heavy = torch.zeros(count, dtype=torch.int64).index_add(0, joined, size) > most
        joined = torch.where(heavy[joined], own, joined)
        roots, number = torch.unique(joined, return_inverse=True)
        cluster, size = number[cluster], torch.zeros(roots.numel(), dtype=torch.int64).index_add(0, number, size)
        say(f"clusters: {roots.numel():,} of {nodes:,} nodes")
        if roots.numel() > 0.9 * count:
            break
    keys, weight, kept = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int32), 1 << 31
    for a, b, some in graph.chunks():
        a, b = cluster[a], cluster[b]
        new = (torch.minimum(a, b) * size.numel() + torch.maximum(a, b))[a != b]
        wanted = _drawn(new, 0) < kept
        keys, inverse = torch.unique(torch.cat([keys, new[wanted]]), return_inverse=True)
        weight = keys.new_zeros(keys.numel(), dtype=torch.int32).index_add(
            0, inverse, torch.cat([weight, some[a != b][wanted]])
        )
        while keys.numel() > MOST_PAIRS:
            kept //= 2
            wanted = _drawn(keys, 0) < kept
            keys, weight = keys[wanted], weight[wanted]
    return cluster, _Weighted(size, torch.stack([keys // size.numel(), keys % size.numel()]), weight)


def _drawn(keys: Tensor, salt: int) -> Tensor:
    """A random number below 2³¹ for each key, the same for the same one."""
    mixed = (keys ^ salt) * -7046029254386353131
    mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
    return (mixed >> 33) & 0x7FFFFFFF
