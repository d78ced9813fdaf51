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

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp

from gssc.datasets.columns import Columns

K = 8
DECIMALS = 10
# Edges and weights this close to where rounding turns are stored: a thousand times the error of any exp().
NEAR_TIE = 1e-3
NEAR_ROUNDING = 2.0**-44
# Pairs of nodes at a time.
PAIRS = 1 << 20
SIDES = (28, 32)
MOST_PIXELS = 255


def encode_nodes(ptr: np.ndarray, x: np.ndarray) -> Columns | None:
    """Pixels, sums of coordinates and of colours of every node as columns; None where ``x`` is not made up of them."""
    if x.dtype != np.float32 or x.shape[1] < 3 or len(x) == 0 or not ((x >= 0) & (x <= 1)).all():
        return None
    for side in SIDES:
        means = np.concatenate([x[:, -2:] * np.float32(side), x[:, :-2]], axis=1).astype(np.float16)
        if np.array_equal(_features(means, side).view(np.uint32), x.view(np.uint32)):
            break
    else:
        return None
    units = np.r_[1, 1, np.full(x.shape[1] - 2, 255)]
    if _pixels(means[:1000], units) is None or (pixels := _pixels(means, units)) is None:
        return None
    sums = np.rint(means.astype(np.float64) * units * pixels[:, None]).astype(np.int64)
    by_size, path = np.argsort(pixels, kind="stable"), _path(ptr, pixels, sums[:, :2])
    size, colours = pixels[path, None], sums[path, 2:]
    # Whole grey levels change little from node to node, and by about as much in every channel.
    change = np.diff(np.diff(colours // size, axis=0, prepend=0), axis=1, prepend=0)
    codes = ((change << 1) ^ (change >> 63)) * size + colours % size
    codes = codes[np.argsort(size[:, 0], kind="stable")]
    return {"side": np.array([side]), "pixels": pixels, "centres": sums[by_size, :2], "colours": codes}


def decode_nodes(ptr: np.ndarray, columns: Columns) -> np.ndarray:
    """The ``x`` that `encode_nodes` was given."""
    pixels, colours = columns["pixels"], columns["colours"]
    if len(pixels) != ptr[-1] or pixels.min(initial=1) < 1:
        raise ValueError("pixels that do not fit the nodes")
    channels = colours.shape[1]
    sums = np.empty((len(pixels), 2 + channels), dtype=np.int64)
    sums[np.argsort(pixels, kind="stable"), :2] = columns["centres"]
    path = _path(ptr, pixels, sums[:, :2])
    size, codes = pixels[path, None], np.empty_like(colours)
    codes[np.argsort(size[:, 0], kind="stable")] = colours
    change, remainder = np.divmod(codes, size)
    levels = np.cumsum(np.cumsum((change >> 1) ^ -(change & 1), axis=1), axis=0)
    sums[path, 2:] = levels * size + remainder
    units = np.r_[1, 1, np.full(channels, 255)]
    means = (sums / (units * pixels[:, None])).astype(np.float16)
    return _features(means, int(columns["side"][0]))


def _features(means: np.ndarray, side: int) -> np.ndarray:
    """Colours, and coordinates divided by the side, in float32."""
    means = means.astype(np.float32)
    return np.concatenate([means[:, 2:], means[:, :2] / np.float32(side)], axis=1)


def _pixels(means: np.ndarray, units: np.ndarray) -> np.ndarray | None:
    """The smallest n of every node for which all means are whole sums divided by n; None where there is none."""
    pixels, left = np.zeros(len(means), dtype=np.int64), np.arange(len(means))
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
    band, across = sums[:, 0] // (3 * pixels), sums[:, 1] // pixels
    across = np.where(band % 2 == 0, across, max(SIDES) - across)
    order: np.ndarray = np.argsort((graph * max(SIDES) + band) * 2 * max(SIDES) + across, kind="stable")
    return order


def encode_edges(
    ptr: np.ndarray, edge_ptr: np.ndarray, edge_index: np.ndarray, x: np.ndarray, edge_attr: np.ndarray
) -> Columns | None:
    """The edges of nodes which do not follow from positions, the last two columns of ``x``; None where too few do.

    ``edge_index`` must be in canonical order.
    """
    if x.dtype != np.float32 or edge_attr.dtype != np.float32 or x.shape[1] < 3 or edge_attr.shape[1] != 1:
        return None
    if len(ptr) < 2 or np.diff(ptr).min() <= K or not np.array_equal(edge_ptr, K * ptr):
        return None
    source = edge_index[0] + np.repeat(ptr[:-1], K * np.diff(ptr))
    if (np.bincount(source, minlength=len(x)) != K).any():
        return None
    by_source = np.argsort(source, kind="stable").reshape(-1, K)
    neighbours, weight = edge_index[1][by_source], edge_attr[:, 0][by_source]
    expected, expected_weight, safe = nearest(ptr, x[:, -2:])
    odd = np.flatnonzero(~safe | (expected != neighbours).any(1) | (expected_weight != weight).any(1))
    if len(odd) > 0.2 * len(x):
        return None
    return {"odd_nodes": odd, "odd_neighbours": neighbours[odd], "odd_weights": weight[odd]}


def decode_edges(ptr: np.ndarray, x: np.ndarray, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """``edge_index`` and ``edge_attr`` that `encode_edges` was given."""
    if len(x) != ptr[-1] or np.diff(ptr).min() <= K:
        raise ValueError("positions that do not fit the graphs")
    neighbours, weight, _ = nearest(ptr, x[:, -2:])
    neighbours[columns["odd_nodes"]] = columns["odd_neighbours"]
    weight[columns["odd_nodes"]] = columns["odd_weights"]
    if (neighbours < 0).any() or (neighbours >= np.repeat(np.diff(ptr), np.diff(ptr))[:, None]).any():
        raise ValueError("an edge that leads out of its graph")
    # From edges by source to edges by destination, in linear time, and in small integers since memory takes the time.
    number = np.arange(len(x), dtype=sp.get_index_dtype(maxval=K * len(x)))
    start = np.repeat(ptr[:-1], np.diff(ptr)).astype(number.dtype)
    every = (weight.reshape(-1), (neighbours + start[:, None]).reshape(-1), np.append(K * number, K * len(x)))
    ordered = sp.csr_array(every, shape=(len(x), len(x))).tocsc()
    into = np.diff(ordered.indptr)
    edge_index = np.stack([ordered.indices, np.repeat(number, into)], dtype=np.int64)
    edge_index -= np.repeat(start, into)
    return edge_index, ordered.data[:, None]


def nearest(ptr: np.ndarray, pos: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rule applied to positions [N, 2] of graphs of more than 8 nodes each.

    Returns:
        The neighbours of every node in ascending order and the weights of the edges to them, [N, 8], and which nodes
        are safe, [N]: where no error in the last bit of exp() changes any of that.
    """
    nodes, sizes = len(pos), np.diff(ptr)
    neighbours, weights = np.empty((nodes, K), np.int32), np.empty((nodes, K), np.float32)
    safe = np.empty(nodes, bool)

    def work(rows: np.ndarray) -> None:
        n = rows.shape[1]
        a = similarity(pos[rows])
        # The first that is left out, then all that are taken.
        last = np.argpartition(sort_keys(a), n - K - 1, axis=2)[..., n - K - 1 :]
        neighbours[rows] = chosen = np.sort(last[..., 1:], axis=2)
        weights[rows] = exact = np.take_along_axis(a, chosen, axis=2)
        low, high = ((exact * (1.0 + error)).astype(np.float32) for error in (-NEAR_ROUNDING, NEAR_ROUNDING))
        # In units of the last decimal.
        left = np.take_along_axis(a, last[..., :1], axis=2)[..., 0] * 10.0**DECIMALS
        taken = exact.min(axis=2) * 10.0**DECIMALS
        turning = np.minimum(np.abs(taken % 1.0 - 0.5), np.abs(left % 1.0 - 0.5)) < NEAR_TIE
        safe[rows] = (low == high).all(2) & ~(turning & (taken - left < 1.0 + 2 * NEAR_TIE))

    # Graphs with equally many nodes, a few at a time. NumPy leaves the interpreter while it computes: threads do help.
    batches = []
    for n in np.unique(sizes).tolist():
        starts = ptr[:-1][sizes == n]
        batches += [part[:, None] + np.arange(n) for part in np.array_split(starts, -(-len(starts) * n * n // PAIRS))]
    with ThreadPoolExecutor() as pool:
        list(pool.map(work, batches))
    return neighbours, weights, safe


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
    return np.rint(a * 10.0**DECIMALS).astype(np.int64) * n + np.arange(n - 1, -1, -1)
