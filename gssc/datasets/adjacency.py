"""The edges of many graphs as columns: half of them where they go both ways, in the order in which training uses them.

Canonical order is that of `FlatGraphs.sorted_by_destination`: by graph, then destination, then source.
"""

from typing import Any

import numpy as np

from gssc.datasets.columns import Coded, decode_column, encode_column

Columns = dict[str, Coded]


def halves(ptr: np.ndarray, edge_ptr: np.ndarray, edge_index: np.ndarray, attributes: list[np.ndarray]) -> Any:
    """Where the one half of the edges (source < destination) is, if the other half repeats it; else None.

    The edges must be in canonical order. They repeat each other if every edge has a twin in the other direction with
    the same attributes (bit for bit), none is repeated, and none leads from a node to itself.
    """
    source, destination = edge_index
    if (source == destination).any() or len(source) == 0:
        return None
    nodes = int(ptr[-1])
    start = np.repeat(ptr[:-1], np.diff(edge_ptr))
    key = (destination + start) * nodes + (source + start)
    mirrored = (source + start) * nodes + (destination + start)
    if (key[1:] == key[:-1]).any():
        return None
    order = np.argsort(mirrored, kind="stable")
    if not np.array_equal(mirrored[order], key):
        return None
    for values in attributes:
        if not np.array_equal(values[order].view(np.uint8), values.view(np.uint8)):
            return None
    return source < destination


def encode_edges(
    ptr: np.ndarray, edge_ptr: np.ndarray, edge_index: np.ndarray, half: np.ndarray | None, dense: bool
) -> tuple[Columns, str]:
    """Columns and the name of the coding.

    ``dense``: one bit per pair of nodes; otherwise the number of edges into every node, and for every edge how far
    behind (``both``: the one half of the edges) or how far from the one before (``directed``) its source is.
    """
    source, destination = edge_index if half is None else edge_index[:, half]
    per_graph = np.diff(edge_ptr) if half is None else _counts(half, edge_ptr)
    start = np.repeat(ptr[:-1], per_graph)
    degree = np.bincount(destination + start, minlength=int(ptr[-1]))
    if dense:
        sizes = np.diff(ptr)
        bits = np.zeros(int((sizes * (sizes - 1) // 2).sum()), dtype=bool)
        first = np.cumsum(sizes * (sizes - 1) // 2) - sizes * (sizes - 1) // 2
        bits[np.repeat(first, per_graph) + destination * (destination - 1) // 2 + source] = True
        return {"pairs": encode_column(bits)}, "dense"
    columns = {"degree": encode_column(degree)}
    if half is not None:
        columns["back"] = encode_column(destination - source)
        return columns, "both"
    step = np.diff(source, prepend=0)
    # The first step into a node is from that node, the others go on from the source before.
    first = (np.cumsum(degree) - degree)[degree > 0]
    step[first] = source[first] - destination[first]
    columns["step"] = encode_column(step)
    return columns, "directed"


def decode_edges(
    ptr: np.ndarray, columns: dict[str, tuple[bytes, dict[str, Any]]], coding: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """``edge_ptr``, ``edge_index`` in canonical order, and for ``both`` the number of the half-edge behind each."""
    sizes = np.diff(ptr)
    graphs = len(sizes)
    if coding == "dense":
        return (*_decode_dense(sizes, decode_column(*columns["pairs"])), None)
    degree = decode_column(*columns["degree"])
    if len(degree) != ptr[-1] or (degree < 0).any():
        raise ValueError("degrees do not fit the number of nodes")
    graph = np.repeat(np.arange(graphs), sizes)
    local = np.arange(int(ptr[-1])) - ptr[:-1][graph]
    destination = np.repeat(local, degree)
    owner = np.repeat(graph, degree)
    far = decode_column(*columns["back" if coding == "both" else "step"])
    if len(far) != len(destination):
        raise ValueError("edges do not fit the degrees")
    if coding == "both":
        source = destination - far
        start = ptr[:-1][owner]
        nodes = max(int(ptr[-1]), 1)
        key = np.concatenate(
            [(destination + start) * nodes + source + start, (source + start) * nodes + destination + start]
        )
        order = np.argsort(key, kind="stable")
        ends = np.stack([np.concatenate([source, destination])[order], np.concatenate([destination, source])[order]])
        edge_ptr = _starts(2 * np.bincount(owner, minlength=graphs))
        behind = np.where(order < len(source), order, order - len(source))
    else:
        total = np.cumsum(far)
        first = (np.cumsum(degree) - degree)[degree > 0]
        base = np.repeat(total[first] - far[first], degree[degree > 0]) if len(first) else total
        source = total - base + destination
        ends, edge_ptr, behind = np.stack([source, destination]), _starts(np.bincount(owner, minlength=graphs)), None
    if ends.size and (ends.min() < 0 or (ends >= np.repeat(sizes, np.diff(edge_ptr))).any()):
        raise ValueError("an edge leads out of its graph")
    return edge_ptr, ends, behind


def _decode_dense(sizes: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = sizes * (sizes - 1) // 2
    if len(bits) != pairs.sum():
        raise ValueError("pairs do not fit the numbers of nodes")
    triangles = {int(n): np.tril_indices(int(n), -1) for n in np.unique(sizes)}
    found, first = [], 0
    for n, count in zip(sizes.tolist(), pairs.tolist(), strict=True):
        matrix = np.zeros((n, n), dtype=bool)
        # Row by row, row = the larger number: the order in which the pairs are numbered.
        matrix[triangles[n]] = bits[first : first + count]
        destination, source = np.nonzero(matrix | matrix.T)
        found.append(np.stack([source, destination]))
        first += count
    edge_ptr = _starts(np.array([ends.shape[1] for ends in found], dtype=np.int64))
    return edge_ptr, np.concatenate(found, axis=1) if found else np.zeros((2, 0), dtype=np.int64)


def _counts(chosen: np.ndarray, edge_ptr: np.ndarray) -> np.ndarray:
    return np.diff(np.concatenate([[0], np.cumsum(chosen)])[edge_ptr])


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
