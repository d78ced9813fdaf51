"""Superpixel graphs (MNIST, CIFAR10) in few numbers: pixels and sums per node, from which all the rest follows.

A node is n pixels of an image; its features are the means of their colours (in 255ths) and of their coordinates (in
sides of the image), as float16. So n and whole sums say them exactly, and colours are close to those of the node before
on a path through the image.

With d_ij the distance of nodes i and j, and σ_i the mean distance of i to its k = 8 nearest nodes,

    A_ij = ½ (exp(-d_ij² / σ_i²) + exp(-d_ij² / σ_j²)),

each node has an edge to each of the 8 nodes with the largest A_ij, of weight A_ij. Equal A (to ten decimals) are
ordered by node number. A pack therefore needs no edges: only those of the few nodes for which another machine's exp(),
which may differ in the last bit, could decide otherwise, or which do not follow the rule.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.datasets.flat import FlatGraphs, GraphDataset

Columns = dict[str, np.ndarray]
K = 8
DECIMALS = 10
# Edges and weights that change with A by this factor are stored: sixty times the error of any exp().
ERROR = 2.0**-46
# Pairs of nodes at a time.
PAIRS = 1 << 20
SIDE_OF = {"mnist": 28, "cifar10": 32}
SIDES = tuple(SIDE_OF.values())
MOST_PIXELS = 255
MOST_NODES = 1000  # in a graph, of which every pair is looked at


def encode(
    ptr: np.ndarray, edge_ptr: np.ndarray, edge_index: np.ndarray, x: np.ndarray | None, edge_attr: np.ndarray | None
) -> Columns | None:
    """Graphs with edges in canonical order as columns of integers; None where they are not of this kind."""
    if x is None or edge_attr is None or x.dtype != np.float32 or edge_attr.dtype != np.float32:
        return None
    if x.shape[1] < 3 or edge_attr.shape[1] != 1 or not np.array_equal(edge_ptr, K * ptr) or not _fits(ptr):
        return None
    source = edge_index[0] + np.repeat(ptr[:-1], K * np.diff(ptr))
    nodes = _encode_nodes(ptr, x)
    if nodes is None or (np.bincount(source, minlength=len(x)) != K).any():
        return None
    by_source = np.argsort(source, kind="stable").reshape(-1, K)
    neighbours, weights = edge_index[1][by_source], edge_attr[:, 0][by_source]
    expected, expected_weights, safe = nearest(ptr, x[:, -2:])
    odd = np.flatnonzero(~safe | (expected != neighbours).any(1) | (expected_weights != weights).any(1))
    if len(odd) > 0.2 * len(x):
        return None
    return {**nodes, "odd_nodes": odd, "odd_neighbours": neighbours[odd], "odd_weights": weights[odd]}


def decode(ptr: np.ndarray, columns: Columns) -> Columns:
    """The arrays that `encode` was given."""
    if not _fits(ptr) or len(columns["pixels"]) != ptr[-1] or columns["pixels"].min() < 1:
        raise ValueError("pixels that do not fit the graphs")
    x = _decode_nodes(ptr, columns)
    neighbours, weights, _ = nearest(ptr, x[:, -2:])
    neighbours[columns["odd_nodes"]] = columns["odd_neighbours"]
    weights[columns["odd_nodes"]] = columns["odd_weights"]
    if (neighbours < 0).any() or (neighbours >= np.repeat(np.diff(ptr), np.diff(ptr))[:, None]).any():
        raise ValueError("an edge that leads out of its graph")
    return _edges(ptr, neighbours, weights) | {"x": x}


def _edges(ptr: np.ndarray, neighbours: np.ndarray, weights: np.ndarray) -> Columns:
    """Edges to neighbours [N, 8] in canonical order, of these weights [N, 8]."""
    # From edges by source to edges by destination, in linear time, and in small integers since memory takes the time.
    start, nodes = np.repeat(ptr[:-1], np.diff(ptr)).astype(np.int32), len(neighbours)
    by_source = (weights.reshape(-1), (neighbours + start[:, None]).reshape(-1), K * np.arange(nodes + 1))
    edges = sp.csr_array(by_source, shape=(nodes, nodes)).tocsc().tocoo()
    edge_index = np.stack([edges.row, edges.col], dtype=np.int64)
    edge_index -= start[edges.col]
    return {"edge_ptr": K * ptr, "edge_index": edge_index, "edge_attr": edges.data[:, None]}


def _fits(ptr: np.ndarray) -> bool:
    sizes = np.diff(ptr)
    return bool(len(sizes) and sizes.min() > K and sizes.max() <= MOST_NODES)


def _encode_nodes(ptr: np.ndarray, x: np.ndarray) -> Columns | None:
    """Pixels, sums of coordinates and of colours as columns; None where ``x`` is not made up of them.

    Sums are in the order of the pixels, which say how large they may be; whole levels of colours along a path.
    """
    if not ((x >= 0) & (x <= 1)).all():
        return None
    for side in SIDES:
        scale = _units(x, 1, side)
        means = (x * scale).astype(np.float16)
        if np.array_equal((means.astype(np.float32) / scale).view(np.uint32), x.view(np.uint32)):
            break
    else:
        return None
    pixels = _pixels(means)
    if pixels is None:
        return None
    sums = np.rint(means.astype(np.float64) * _units(x, 255, 1) * pixels).astype(np.int64)
    by_size, path = np.argsort(pixels[:, 0], kind="stable"), _path(ptr, means[:, -2:])
    levels, rest = np.divmod(sums[:, :-2], pixels)
    # Levels change little from node to node, and by about as much in every channel; bytes wrap around.
    change = np.diff(levels[path].astype(np.uint8), axis=0, prepend=np.uint8(0))
    change = np.diff(change, axis=1, prepend=np.uint8(0))
    centres = sums[by_size, -2:]
    return {"side": np.array([side]), "pixels": pixels, "centres": centres, "levels": change, "rest": rest[by_size]}


def _decode_nodes(ptr: np.ndarray, columns: Columns) -> np.ndarray:
    """The ``x`` that `_encode_nodes` was given."""
    pixels, change = columns["pixels"].astype(np.int64), columns["levels"]
    by_size = np.argsort(pixels[:, 0], kind="stable")
    sums = np.empty((len(pixels), change.shape[1] + 2), dtype=np.int64)
    sums[by_size, -2:] = columns["centres"]
    levels = np.cumsum(np.cumsum(change, axis=1, dtype=np.uint8), axis=0, dtype=np.uint8)
    sums[_path(ptr, (sums[:, -2:] / pixels).astype(np.float16)), :-2] = levels
    sums[:, :-2] *= pixels
    sums[by_size, :-2] += columns["rest"]
    means = (sums / (_units(sums, 255, 1) * pixels)).astype(np.float16)
    x: np.ndarray = means.astype(np.float32) / _units(sums, 1, int(columns["side"][0]))
    return x


def _units(columns: np.ndarray, colour: int, place: int) -> np.ndarray:
    return np.r_[np.full(columns.shape[1] - 2, colour), place, place].astype(np.float32)


def _pixels(means: np.ndarray) -> np.ndarray | None:
    """The smallest n of every node for which all means are whole sums divided by n, [N, 1]; None if there is none."""
    units, pixels, left = _units(means, 255, 1), np.zeros((len(means), 1), dtype=np.int64), np.arange(len(means))
    for n in range(1, MOST_PIXELS + 1):
        wanted = means[left]
        sums = np.rint(wanted.astype(np.float64) * (units * n)).astype(np.int64)
        fits = ((sums / (units * n)).astype(np.float16).view(np.uint16) == wanted.view(np.uint16)).all(1)
        pixels[left[fits]] = n
        left = left[~fits]
        if len(left) == 0:
            return pixels
    return None


def _path(ptr: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The nodes of each graph along bands of three rows."""
    graph, (row, column) = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr)), centres.T.astype(np.float64)
    order: np.ndarray = np.argsort((graph * max(SIDES) + row // 3) * max(SIDES) + column, kind="stable")
    return order


def mirrored(x: Tensor, batch: Tensor, graphs: int, side: int) -> Tensor:
    """Node features [N, D] with about half of the images left to right: their last column is column / side.

    Edges and their weights depend on distances alone, so that these graphs and their spectra are those of the images
    as they are.
    """
    turned = (torch.rand(graphs, device=x.device) < 0.5).index_select(0, batch)
    column = x[:, -1]
    return torch.cat([x[:, :-1], torch.where(turned, (side - 1) / side - column, column).unsqueeze(1)], dim=1)


def nearest(ptr: np.ndarray, pos: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rule applied to positions [N, 2] of graphs of more than 8 nodes each.

    Returns:
        The neighbours of every node in ascending order and the weights of the edges to them, [N, 8], and which nodes
        are safe, [N]: where no error in the last bits of A changes any of that.
    """
    nodes = len(pos)
    neighbours, weights = np.empty((nodes, K), np.int32), np.empty((nodes, K), np.float32)
    safe = np.empty(nodes, bool)

    def work(rows: np.ndarray) -> None:
        n = rows.shape[1]
        a = similarity(pos[rows])
        # The first that is left out, then all that are taken.
        last = np.argpartition(sort_keys(a), n - K - 1, axis=2)[..., n - K - 1 :]
        neighbours[rows] = chosen = np.sort(last[..., 1:], axis=2)
        weights[rows] = np.take_along_axis(a, chosen, axis=2)
        exact = np.take_along_axis(a, last, axis=2)
        low, high = exact * (1.0 - ERROR), exact * (1.0 + ERROR)
        same = (low.astype(np.float32) == high.astype(np.float32)) & (_decimals(low) == _decimals(high))
        safe[rows] = same.all(2)

    _by_size(ptr, work)
    return neighbours, weights, safe


def published(ptr: np.ndarray, pos: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the published code keeps: of the nine nodes with the largest A, all but the one that NumPy put last.

    A partition leaves that open. NumPy 2 answers otherwise than the NumPy of that code, but for long numbers, for which
    it goes on as before: from 1.23 to 2.4 all answers are the same. A is rounded, as in `nearest`, so that no exp()
    decides either.

    Returns:
        Neighbours and weights of positions [N, 2] of graphs of more than 9 nodes each, [N, 8].
    """
    neighbours, weights = np.empty((len(pos), K), np.int32), np.empty((len(pos), K), np.float32)

    def work(rows: np.ndarray) -> None:
        n, a = rows.shape[1], similarity(pos[rows])
        kept = np.argpartition(_decimals(a).astype(np.longdouble), n - K - 2, axis=2)[..., n - K - 1 : -1]
        neighbours[rows] = np.sort(kept, axis=2)
        weights[rows] = np.take_along_axis(a, neighbours[rows], axis=2)

    _by_size(ptr, work)
    return neighbours, weights


def with_published_neighbours(dataset: GraphDataset) -> GraphDataset:
    """Superpixels with the edges that the published code would give them, made of the positions that they have."""
    check_choice("data.dataset where data.neighbours is published", dataset.name, SIDE_OF)
    return replace(dataset, splits={split: _with_edges(graphs) for split, graphs in dataset.splits.items()})


def _with_edges(graphs: FlatGraphs) -> FlatGraphs:
    ptr, x = graphs.ptr.numpy(), graphs.x
    assert x is not None
    if (smallest := int(np.diff(ptr).min(initial=K + 2))) < K + 2:
        fail("graphs where data.neighbours is published", f"more than {K + 1} nodes", smallest)
    edges = {name: torch.from_numpy(rows) for name, rows in _edges(ptr, *published(ptr, x[:, -2:].numpy())).items()}
    return replace(graphs, **edges | {"edge_attr": edges["edge_attr"].to(x.dtype)})


def _by_size(ptr: np.ndarray, work: Callable[[np.ndarray], None]) -> None:
    """Call ``work`` with the nodes [B, n] of graphs with equally many nodes, a few graphs at a time."""
    # NumPy leaves the interpreter while it computes: threads do help.
    sizes, batches = np.diff(ptr), []
    for n in np.unique(sizes).tolist():
        starts = ptr[:-1][sizes == n]
        batches += [part[:, None] + np.arange(n) for part in np.array_split(starts, -(-len(starts) * n * n // PAIRS))]
    with ThreadPoolExecutor() as pool:
        list(pool.map(work, batches))


def similarity(pos: np.ndarray) -> np.ndarray:
    """A of graphs with equally many nodes: [B, n, 2] -> [B, n, n] in float64, -1 on the diagonal."""
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
    a[:, nodes, nodes] = -1.0
    return a


def sort_keys(a: np.ndarray) -> np.ndarray:
    """Different integers for the entries of a row of A, the larger the earlier: by rounded value, then number."""
    n = a.shape[2]
    return _decimals(a).astype(np.int64) * n + np.arange(n - 1, -1, -1)


def _decimals(a: np.ndarray) -> np.ndarray:
    return np.rint(a * 10.0**DECIMALS)
