"""Which process holds which node: equally many nodes each, and few edges between them.

``"metis"`` asks METIS (the extra ``metis``), ``"propagation"`` improves blocks of an order in which neighbours are
close, and ``"random"`` draws: then nearly every edge is cut, and all is only slower.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal, get_args

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


def assign_nodes(
    edge_index: Tensor,
    nodes: int,
    ranks: int,
    method: Method = "auto",
    seed: int = 0,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Tensor, str]:
    """The process of every node, [N], and the method: ``"auto"`` is METIS where pymetis is installed, else propagation.

    Edges [2, E] count in both directions.
    """
    check_choice("method", method, METHODS)
    check_positive("ranks", ranks)
    if method == "auto":
        method = "metis" if find_spec("pymetis") is not None else "propagation"
    elif method == "metis":
        check_installed("method", "pymetis")
    if ranks == 1 or not nodes:
        return torch.zeros(nodes, dtype=torch.int64), method
    if method == "random":
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(seed))
        return torch.empty(nodes, dtype=torch.int64).index_copy_(0, order, _blocks(nodes, ranks)), method
    source, target = edge_index.numpy()
    both = sp.coo_array((np.ones(source.size, dtype=np.int8), (source, target)), shape=(nodes, nodes)).tocsr()
    both = (both + both.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    if method == "metis":
        import pymetis

        _, part = pymetis.part_graph(ranks, pymetis.CSRAdjacency(both.indptr, both.indices))
        return torch.tensor(part, dtype=torch.int64), method
    return torch.from_numpy(_propagate(both, ranks, seed, say)), method


def _blocks(nodes: int, ranks: int) -> Tensor:
    return torch.arange(nodes) * ranks // max(nodes, 1)


def _propagate(graph: sp.csr_array, ranks: int, seed: int, say: Callable[[str], None]) -> np.ndarray:
    """Label propagation with a limit of sizes, from blocks of the order of Cuthill and McKee.

    In every round half of the nodes, so that neighbours do not change places for ever, may move to the part in which
    they have more neighbours than in their own: those that gain most first, as long as it has room.
    """
    nodes, generator = graph.shape[0], np.random.default_rng(seed)
    part = np.empty(nodes, dtype=np.int64)
    part[reverse_cuthill_mckee(graph, symmetric_mode=True)] = _blocks(nodes, ranks).numpy()
    target, source = np.repeat(np.arange(nodes), np.diff(graph.indptr)), graph.indices
    most = int(np.ceil(SLACK * nodes / ranks))
    for number in range(ROUNDS):
        crosses = part[source] != part[target]
        say(f"propagation, round {number}: {crosses.mean() if crosses.size else 0.0:.2%} of the edges are cut")
        border = np.zeros(nodes, dtype=bool)
        border[target[crosses]] = True
        border &= generator.random(nodes) < 0.5
        seen = border[target]
        pairs, counts = np.unique(target[seen] * ranks + part[source[seen]], return_counts=True)
        node, other = np.divmod(pairs, ranks)
        own = np.zeros(nodes, dtype=np.int64)
        inside = other == part[node]
        own[node[inside]] = counts[inside]
        gain = counts - own[node]
        wins = gain > 0
        node, other, gain = node[wins & ~inside], other[wins & ~inside], gain[wins & ~inside]
        # The best part of each node, then the nodes that gain most of each part.
        best = np.lexsort((other, -gain, node))
        best = best[np.unique(node[best], return_index=True)[1]]
        best = best[np.lexsort((node[best], -gain[best], other[best]))]
        places = np.arange(best.size) - np.searchsorted(other[best], other[best])
        moves = best[places < most - np.bincount(part, minlength=ranks)[other[best]]]
        part[node[moves]] = other[moves]
        if moves.size <= FEW * nodes:
            break
    return part
