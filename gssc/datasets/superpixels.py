"""Superpixel graphs (MNIST, CIFAR10): edges and their weights follow from the positions of the nodes.

With d_ij the distance of nodes i and j, and σ_i the mean distance of i to its k = 8 nearest nodes,

    A_ij = ½ (exp(-d_ij² / σ_i²) + exp(-d_ij² / σ_j²)),

each node has an edge to each of the 8 nodes with the largest A_ij, of weight A_ij. Equal A (to ten decimals) are
ordered by node number. A pack therefore needs no edges: only those few that another machine's exp(), which may differ
in the last bit, could decide otherwise, and those that do not follow the rule.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

K = 8
DECIMALS = 10
# Nodes and weights this close to where rounding turns are stored: a thousand times the error of any exp().
NEAR_TIE = 1e-3
NEAR_ROUNDING = 2.0**-44
PAIRS = 1 << 21


def similarity(pos: Tensor) -> Tensor:
    """A of graphs with equally many nodes: [B, n, 2] -> [B, n, n] in float64, zero on the diagonal."""
    pos = pos.double()
    squared = (pos[:, :, None, 0] - pos[:, None, :, 0]).square_()
    squared += (pos[:, :, None, 1] - pos[:, None, :, 1]).square_()
    nearest = squared.topk(K + 1, dim=2, largest=False).values.sqrt_()
    width = nearest.sum(2) / K + 1e-8
    a = (-squared / width.square().unsqueeze(2)).exp_()
    a = 0.5 * (a + a.transpose(1, 2))
    a.diagonal(dim1=1, dim2=2).zero_()
    return a


def ranked(a: Tensor, count: int) -> Tensor:
    """Nodes by decreasing similarity, then number: [B, n, n] -> the first ``count``, [B, n, count]."""
    n = a.shape[2]
    key = (a * 10.0**DECIMALS).round().long() * n + torch.arange(n - 1, -1, -1)
    return key.topk(count, dim=2).indices


def groups(ptr: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Graphs with equally many nodes, a few at a time: the number of nodes, and the numbers of the graphs."""
    sizes = np.diff(ptr)
    for n in np.unique(sizes):
        same = np.flatnonzero(sizes == n)
        yield from ((int(n), part) for part in np.array_split(same, -(-len(same) * int(n) ** 2 // PAIRS)))


def rebuild(
    ptr: np.ndarray, pos: np.ndarray, nodes: np.ndarray, neighbours: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """``edge_index`` [2, 8N] in canonical order and the weights [8N] in float64.

    Args:
        ptr: Where each graph begins, [G + 1].
        pos: Positions, [N, 2].
        nodes: Nodes whose neighbours are given because the rule is not to decide, in ascending order.
        neighbours: Their neighbours, [len(nodes), 8].
    """
    ends = np.empty((2, K * int(ptr[-1])), dtype=np.int64)
    weight = np.empty(K * int(ptr[-1]))
    given = np.full(int(ptr[-1]), -1)
    given[nodes] = np.arange(len(nodes))
    for n, part in groups(ptr):
        rows = ptr[part][:, None] + np.arange(n)
        a = similarity(torch.from_numpy(pos[rows]))
        chosen = ranked(a, K)
        replaced = given[rows]
        if (replaced >= 0).any():
            chosen[torch.from_numpy(replaced >= 0)] = torch.from_numpy(neighbours[replaced[replaced >= 0]])
        leads = torch.zeros(a.shape, dtype=torch.bool).scatter_(2, chosen, True)
        # [graph, destination, source]: reading it row by row is the canonical order.
        into = leads.transpose(1, 2)
        _, destination, source = into.nonzero(as_tuple=True)
        places = (K * ptr[part])[:, None] + np.arange(K * n)
        if source.numel() != places.size:
            raise ValueError("a node's neighbours are not eight different nodes")
        ends[0, places], ends[1, places] = source.view(len(part), -1).numpy(), destination.view(len(part), -1).numpy()
        weight[places] = a[into].view(len(part), -1).numpy()
    return ends, weight


def exceptions(ptr: np.ndarray, pos: np.ndarray, edge_index: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Nodes whose neighbours the rule does not safely give, and those neighbours [.., 8]; None where it rarely does.

    ``edge_index`` must be in canonical order with eight edges leaving every node.
    """
    start = np.repeat(ptr[:-1], K * np.diff(ptr))
    order = np.argsort((edge_index[0] + start), kind="stable")
    actual = edge_index[1][order].reshape(-1, K)
    odd = np.zeros(len(actual), dtype=bool)
    seen = 0
    for n, part in groups(ptr):
        rows = ptr[part][:, None] + np.arange(n)
        a = similarity(torch.from_numpy(pos[rows]))
        best = ranked(a, K + 1) if n > K + 1 else ranked(a, K)
        wrong = (best[..., :K].sort(2).values != torch.from_numpy(actual[rows])).any(2)
        if n > K + 1:
            last_two = a.gather(2, best[..., K - 1 :]) * 10.0**DECIMALS
            turning = ((last_two % 1.0) - 0.5).abs().amin(2) < NEAR_TIE
            wrong |= turning & ((last_two[..., 0] - last_two[..., 1]).abs() < 1.0 + 2 * NEAR_TIE)
        odd[rows] = wrong.numpy()
        seen += rows.size
        if seen > 20_000 and odd.sum() > 0.2 * seen:
            return None
    return np.flatnonzero(odd), actual[odd]


def unsafe_weights(weight: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Numbers of the weights that rounding to the type of ``actual`` does not safely give."""
    low, high = ((weight * (1.0 + side)).astype(actual.dtype) for side in (-NEAR_ROUNDING, NEAR_ROUNDING))
    return np.flatnonzero((low != actual) | (high != actual))
