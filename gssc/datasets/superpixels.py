"""Superpixel graphs (MNIST, CIFAR10): edges and their weights follow from the positions of the nodes.

With d_ij the distance of nodes i and j, and σ_i the mean distance of i to its k = 8 nearest nodes,

    A_ij = ½ (exp(-d_ij² / σ_i²) + exp(-d_ij² / σ_j²)),

each node has an edge to each of the 8 nodes with the largest A_ij, of weight A_ij. Equal A (to ten decimals) are
ordered by node number. A pack therefore needs no edges: only those few that another machine's exp(), which may differ
in the last bit, could decide otherwise, and those that do not follow the rule.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

K = 8
DECIMALS = 10
# Nodes and weights this close to where rounding turns are stored: a thousand times the error of any exp().
NEAR_TIE = 1e-3
NEAR_ROUNDING = 2.0**-44
# Pairs of nodes at a time.
PAIRS = 1 << 20
Result = TypeVar("Result")


def similarity(pos: np.ndarray) -> np.ndarray:
    """A of graphs with equally many nodes: [B, n, 2] -> [B, n, n] in float64, zero on the diagonal."""
    row, column = np.moveaxis(pos.astype(np.float64), 2, 0)
    squared = np.square(row[:, :, None] - row[:, None, :])
    other = column[:, :, None] - column[:, None, :]
    squared += np.square(other, out=other)
    width = np.sqrt(np.partition(squared, K, axis=2)[..., : K + 1]).sum(2) / K + 1e-8
    squared /= -np.square(width)[..., None]
    half = np.exp(squared, out=squared)
    a = np.add(half, half.transpose(0, 2, 1), out=other)
    a *= 0.5
    nodes = np.arange(a.shape[1])
    a[:, nodes, nodes] = 0.0
    return a


def sort_keys(a: np.ndarray) -> np.ndarray:
    """Different integers for the entries of a row of A, the larger the earlier: by rounded value, then number."""
    n = a.shape[2]
    return np.rint(a * 10.0**DECIMALS).astype(np.int64) * n + np.arange(n - 1, -1, -1)


def leads_to(a: np.ndarray) -> np.ndarray:
    """Whether node i has an edge to node j: [B, n, n]."""
    keys = sort_keys(a)
    n = a.shape[2]
    return keys >= np.partition(keys, n - K, axis=2)[..., n - K, None]


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

    def work(group: tuple[int, np.ndarray]) -> None:
        n, part = group
        rows = ptr[part][:, None] + np.arange(n)
        a = similarity(pos[rows])
        leads = leads_to(a)
        for graph, node in np.argwhere(given[rows] >= 0):
            leads[graph, node] = False
            leads[graph, node, neighbours[given[rows[graph, node]]]] = True
        # [graph, destination, source]: reading it row by row is the canonical order.
        found = np.flatnonzero(leads.transpose(0, 2, 1).reshape(-1))
        places = (K * ptr[part])[:, None] + np.arange(K * n)
        if len(found) != places.size:
            raise ValueError("a node's neighbours are not eight different nodes")
        ends[0, places] = (found % n).reshape(places.shape)
        ends[1, places] = (found // n % n).reshape(places.shape)
        weight[places] = a.reshape(-1)[found].reshape(places.shape)

    _in_threads(work, groups(ptr))
    return ends, weight


def exceptions(ptr: np.ndarray, pos: np.ndarray, edge_index: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Nodes whose neighbours the rule does not safely give, and those neighbours [.., 8]; None where it rarely does.

    ``edge_index`` must be in canonical order with eight edges leaving every node.
    """
    start = np.repeat(ptr[:-1], K * np.diff(ptr))
    actual = edge_index[1][np.argsort(edge_index[0] + start, kind="stable")].reshape(-1, K)
    odd = np.zeros(len(actual), dtype=bool)

    def work(group: tuple[int, np.ndarray]) -> float:
        n, part = group
        rows = ptr[part][:, None] + np.arange(n)
        a = similarity(pos[rows])
        wrong = (np.nonzero(leads_to(a))[2].reshape(*rows.shape, K) != actual[rows]).any(2)
        if n > K + 1:
            # The last that is taken and the first that is not, in units of the last decimal.
            last = np.partition(np.where(np.eye(n, dtype=bool), -1.0, a), n - K - 1, axis=2)[..., n - K - 1 :]
            taken, left = np.sort(last, axis=2)[..., 1] * 10.0**DECIMALS, last[..., 0] * 10.0**DECIMALS
            turning = np.minimum(np.abs(taken % 1.0 - 0.5), np.abs(left % 1.0 - 0.5)) < NEAR_TIE
            wrong |= turning & (taken - left < 1.0 + 2 * NEAR_TIE)
        odd[rows] = wrong
        return float(wrong.mean())

    batches = groups(ptr)
    if max(_in_threads(work, batches[:4])) > 0.2:
        return None
    _in_threads(work, batches[4:])
    return np.flatnonzero(odd), actual[odd]


def unsafe_weights(weight: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Numbers of the weights that rounding to the type of ``actual`` does not safely give."""
    low, high = ((weight * (1.0 + side)).astype(actual.dtype) for side in (-NEAR_ROUNDING, NEAR_ROUNDING))
    return np.flatnonzero((low != actual) | (high != actual))


def groups(ptr: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Graphs with equally many nodes, a few at a time: the number of nodes, and the numbers of the graphs."""
    sizes = np.diff(ptr)
    found = []
    for n in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == n)
        found += [(n, part) for part in np.array_split(same, -(-len(same) * n * n // PAIRS))]
    return found


def _in_threads(
    work: Callable[[tuple[int, np.ndarray]], Result], items: Iterable[tuple[int, np.ndarray]]
) -> list[Result]:
    """NumPy leaves the interpreter while it computes, so threads do run side by side."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cores, 16)) as pool:
        return list(pool.map(work, items))
