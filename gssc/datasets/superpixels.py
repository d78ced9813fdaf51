"""Superpixel graphs (MNIST, CIFAR10) in few numbers: pixels and sums per node, from which all the rest follows.

A node is n pixels of an image; its features are the means of their colours (in 255ths) and of their coordinates (in
sides of the image), as float16. So n and whole sums say them exactly, and colours are close to those of the node before
on a path through the image.

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
SIDES = (28, 32)
MOST_PIXELS = 255
Result = TypeVar("Result")


def encode_nodes(ptr: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray] | None:
    """Pixels, sums of coordinates and of colours of every node as columns; None where ``x`` is not made up of them."""
    if x.dtype != np.float32 or x.shape[1] < 3 or len(x) == 0 or not ((x >= 0) & (x <= 1)).all():
        return None
    for side in SIDES:
        means = np.concatenate([x[:, -2:] * np.float32(side), x[:, :-2]], axis=1).astype(np.float16)
        if np.array_equal(_features(means, side).view(np.uint32), x.view(np.uint32)):
            break
    else:
        return None
    units = np.array([1, 1] + [255] * (x.shape[1] - 2))
    if _pixels(means[:1000], units) is None or (pixels := _pixels(means, units)) is None:
        return None
    sums = np.rint(means.astype(np.float64) * units * pixels[:, None]).astype(np.int64)
    by_size, path = np.argsort(pixels, kind="stable"), _path(ptr, pixels, sums[:, :2])
    columns = {"side": np.array([side]), "pixels": pixels, "row": sums[by_size, 0], "column": sums[by_size, 1]}
    size, colours = pixels[path].astype(np.int64)[:, None], sums[path, 2:]
    expected = np.empty_like(colours)
    expected[1:] = (size[1:] * colours[:-1] + size[:-1] // 2) // size[:-1]
    first = ptr[:-1][np.diff(ptr) > 0]
    expected[first] = 128 * size[first]
    surprise = np.diff(colours - expected, axis=1, prepend=0)
    surprise = (surprise << 1) ^ (surprise >> 63)
    # Large and small surprises, as the sizes and the other colours foretell them, are kept apart.
    scale = size[:, 0]
    for channel, values in enumerate(surprise.T):
        columns[f"colour/{channel}"] = values[np.argsort(scale, kind="stable")]
        scale = np.frexp(values)[1]
    return columns


def decode_nodes(ptr: np.ndarray, columns: dict[str, np.ndarray]) -> np.ndarray:
    """The ``x`` that `encode_nodes` was given."""
    pixels = columns["pixels"]
    channels = sum(name.startswith("colour/") for name in columns)
    if len(pixels) != ptr[-1] or pixels.min(initial=1) < 1:
        raise ValueError("pixels that do not fit the nodes")
    sums = np.empty((len(pixels), 2 + channels), dtype=np.int64)
    by_size = np.argsort(pixels, kind="stable")
    sums[by_size, 0], sums[by_size, 1] = columns["row"], columns["column"]
    path = _path(ptr, pixels, sums[:, :2])
    size = scale = pixels[path].astype(np.int64)
    surprise = np.empty((len(pixels), channels), dtype=np.int64)
    for channel in range(channels):
        surprise[np.argsort(scale, kind="stable"), channel] = columns[f"colour/{channel}"]
        scale = np.frexp(surprise[:, channel])[1]
    colours = np.cumsum((surprise >> 1) ^ -(surprise & 1), axis=1)
    size, nodes = size[:, None], np.diff(ptr)
    for step in range(int(nodes.max(initial=0))):
        node = ptr[:-1][nodes > step] + step
        last = node - 1
        colours[node] += (size[node] * colours[last] + size[last] // 2) // size[last] if step else 128 * size[node]
    sums[path, 2:] = colours
    means = (sums / (np.array([1, 1] + [255] * channels) * pixels.astype(np.int64)[:, None])).astype(np.float16)
    return _features(means, int(columns["side"][0]))


def _features(means: np.ndarray, side: int) -> np.ndarray:
    """Colours, and coordinates divided by the side, in float32."""
    means = means.astype(np.float32)
    return np.concatenate([means[:, 2:], means[:, :2] / np.float32(side)], axis=1)


def _pixels(means: np.ndarray, units: np.ndarray) -> np.ndarray | None:
    """The smallest n of every node for which all means are whole sums divided by n; None where there is none."""
    pixels, left = np.zeros(len(means), dtype=np.uint8), np.arange(len(means))
    for n in range(1, MOST_PIXELS + 1):
        wanted = means[left]
        sums = np.rint(wanted.astype(np.float64) * (units * n)).astype(np.int64)
        fits = ((sums / (units * n)).astype(np.float16).view(np.uint16) == wanted.view(np.uint16)).all(1)
        pixels[left[fits]] = n
        left = left[~fits]
        if len(left) == 0:
            return pixels
    return None


def _path(ptr: np.ndarray, pixels: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """The nodes of each graph along bands of three rows, there and back."""
    graph = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    size = pixels.astype(np.int64)
    band, across = sums[:, 0] // (3 * size), 256 * sums[:, 1] // size
    across = np.where(band % 2 == 0, across, 8191 - across)
    order: np.ndarray = np.argsort((graph * 16 + band) * 8192 + across, kind="stable")
    return order


def encode_edges(
    ptr: np.ndarray, edge_index: np.ndarray, x: np.ndarray, edge_attr: np.ndarray
) -> dict[str, np.ndarray] | None:
    """What does not follow from the positions, the last two columns of ``x``, as columns; None where too little does.

    ``edge_index`` must be in canonical order.
    """
    if x.dtype != np.float32 or edge_attr.dtype != np.float32 or x.shape[1] < 3 or edge_attr.shape[1] != 1:
        return None
    edges = edge_index.shape[1]
    if len(ptr) < 2 or np.diff(ptr).min() <= K or edges != K * len(x):
        return None
    source = edge_index[0] + np.repeat(ptr[:-1], K * np.diff(ptr))
    if source.max() >= len(x) or (np.bincount(source, minlength=len(x)) != K).any():
        return None
    compared = exceptions(ptr, x[:, -2:], edge_index)
    if compared is None:
        return None
    nodes, neighbours, weight = compared
    odd = unsafe_weights(weight, edge_attr[:, 0])
    if len(odd) > 0.2 * edges:
        return None
    odd_edges = {"odd_weights": odd, "odd_values": edge_attr[odd, 0]}
    return {"odd_nodes": nodes, "odd_neighbours": neighbours.reshape(-1), **odd_edges}


def decode_edges(ptr: np.ndarray, x: np.ndarray, columns: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """``edge_index`` and ``edge_attr`` that `encode_edges` was given."""
    edge_index, weight = rebuild(ptr, x[:, -2:], columns["odd_nodes"], columns["odd_neighbours"].reshape(-1, K))
    edge_attr = weight.astype(np.float32)
    edge_attr[columns["odd_weights"]] = columns["odd_values"]
    return edge_index, edge_attr[:, None]


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
    exception = np.full(int(ptr[-1]), -1)
    exception[nodes] = np.arange(len(nodes))

    def work(group: tuple[int, np.ndarray]) -> None:
        n, part = group
        rows = ptr[part][:, None] + np.arange(n)
        a = similarity(pos[rows])
        leads = leads_to(a)
        for graph, node in np.argwhere(exception[rows] >= 0):
            leads[graph, node] = False
            leads[graph, node, neighbours[exception[rows[graph, node]]]] = True
        # [graph, destination, source]: reading it row by row is the canonical order.
        joined = np.flatnonzero(leads.transpose(0, 2, 1).reshape(-1))
        places = (K * ptr[part])[:, None] + np.arange(K * n)
        if len(joined) != places.size:
            raise ValueError("a node's neighbours are not eight different nodes")
        ends[0, places] = (joined % n).reshape(places.shape)
        ends[1, places] = (joined // n % n).reshape(places.shape)
        weight[places] = a.reshape(-1)[joined].reshape(places.shape)

    _in_threads(work, groups(ptr))
    return ends, weight


def exceptions(
    ptr: np.ndarray, pos: np.ndarray, edge_index: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Nodes whose neighbours the rule does not safely give, those neighbours [.., 8], and A of every edge in float64.

    None where the rule rarely gives them. ``edge_index`` must be in canonical order with eight edges leaving each node.
    """
    by_source = np.argsort(edge_index[0] + np.repeat(ptr[:-1], K * np.diff(ptr)), kind="stable")
    actual = edge_index[1][by_source].reshape(-1, K)
    if (np.diff(actual) <= 0).any():
        return None
    odd, weight = np.zeros(len(actual), dtype=bool), np.empty(edge_index.shape[1])

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
        weight[by_source.reshape(-1, K)[rows]] = np.take_along_axis(a, actual[rows], axis=2)
        return float(wrong.mean())

    batches = groups(ptr)
    if max(_in_threads(work, batches[:4])) > 0.2:
        return None
    _in_threads(work, batches[4:])
    return np.flatnonzero(odd), actual[odd], weight


def unsafe_weights(weight: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Numbers of the weights that rounding to the type of ``actual`` does not safely give."""
    low, high = ((weight * (1.0 + side)).astype(actual.dtype) for side in (-NEAR_ROUNDING, NEAR_ROUNDING))
    return np.flatnonzero((low != actual) | (high != actual))


def groups(ptr: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """Graphs with equally many nodes, a few at a time: the number of nodes, and the numbers of the graphs."""
    sizes = np.diff(ptr)
    batches = []
    for n in np.unique(sizes).tolist():
        same = np.flatnonzero(sizes == n)
        batches += [(n, part) for part in np.array_split(same, -(-len(same) * n * n // PAIRS))]
    return batches


def _in_threads(
    work: Callable[[tuple[int, np.ndarray]], Result], items: Iterable[tuple[int, np.ndarray]]
) -> list[Result]:
    """NumPy leaves the interpreter while it computes, so threads do run side by side."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cores, 16)) as pool:
        return list(pool.map(work, items))
