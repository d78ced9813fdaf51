"""Cycle counting: random graphs, published or generated, with the cycles of each length through every node."""

import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from gssc.checks import check_positive, check_shape, fail
from gssc.datasets.claims import check_archive
from gssc.datasets.split import NAMES
from gssc.readers import NONSENSE

# Sizes and degrees of the random regular graphs of Chen et al., "Can Graph Neural Networks Count Substructures?".
SIZES_AND_DEGREES = ((10, 6), (15, 6), (20, 5), (30, 5))
CYCLE_LENGTHS = (3, 4, 5, 6)
GRAPHS, TRAIN, VALIDATION = 5000, 1500, 1000
UNREADABLE = (*NONSENSE, SyntaxError, tokenize.TokenError)  # NumPy reads the head of an array as Python's tokens

EXPECTED = "the arrays n_nodes, n_edges, edge_u, edge_v, y and *_idx"


def load_cycles(length: int, root: Path, seed: int = 0, *, generate: bool = False) -> dict[str, list[Data]]:
    """Graphs with ``y [n, 1]``, the number of cycles of this length through every node, by split.

    Read from ``ROOT/cycles/raw/count_cycle.npz`` where that file is; otherwise 5,000 graphs are generated and split
    1,500 / 1,000 / 2,500.
    """
    column = CYCLE_LENGTHS.index(length)
    path = root / "cycles" / "raw" / "count_cycle.npz"
    if path.exists() and not generate:
        graphs, splits = _read(path)
    else:
        graphs = cycle_counting(GRAPHS, seed)
        splits = dict(zip(NAMES, np.split(np.arange(GRAPHS), [TRAIN, TRAIN + VALIDATION]), strict=True))
    for graph in graphs:
        graph.y = graph.y[:, column : column + 1]
    return {split: [graphs[i] for i in numbers] for split, numbers in splits.items()}


def _read(path: Path) -> tuple[list[Data], dict[str, np.ndarray]]:
    check_archive("count_cycle.npz", EXPECTED, path, packed=True)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        nodes, edges = arrays["n_nodes"].astype(np.int64), arrays["n_edges"].astype(np.int64)
        ends = np.stack([arrays["edge_u"], arrays["edge_v"]]).astype(np.int64)
        counts = torch.from_numpy(arrays["y"]).to(torch.get_default_dtype())
        splits = {split: arrays[f"{split}_idx"] for split in NAMES}
        parts = zip(np.split(ends, np.cumsum(edges)[:-1], axis=1), counts.split(nodes.tolist()), strict=True)
        both = ((torch.from_numpy(np.concatenate([pairs, pairs[::-1]], axis=1)), y) for pairs, y in parts)
        graphs = [Data(edge_index=edge_index, y=y, num_nodes=len(y)) for edge_index, y in both]
        for name, numbers in splits.items():
            if numbers.ndim != 1 or not set(numbers.tolist()) <= set(range(len(graphs))):
                raise ValueError(f"{name}_idx that are no numbers of graphs")
    except (*UNREADABLE, OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        fail("count_cycle.npz", EXPECTED, f"{path}: {error}")
    return graphs, splits


def cycle_counts(adjacency: torch.Tensor) -> torch.Tensor:
    """Number of 3-, 4-, 5- and 6-cycles through every node of simple graphs: A [B, n, n] -> [B, n, 4].

    A cycle through u is two paths from u to another of its nodes v that share nothing but their ends, so with p2 and
    p3 the numbers of paths of two and three edges from u to v:

        3-cycles  ½ diag(A³)
        4-cycles  Σ_v p2 (p2 - 1) / 2              two different middles
        5-cycles  Σ_v ½ #{2-path, 3-path disjoint}   each cycle has two nodes v at distance 2 from u
        6-cycles  Σ_v ½ #{3-path, 3-path disjoint}   ordered pairs, one v opposite to u

    The disjoint pairs follow by inclusion and exclusion from r_a and c_b, the numbers of 3-paths u-a-b-v with first
    inner node a and with second inner node b: O(n³) per graph, no enumeration.
    """
    n = adjacency.shape[-1]
    check_shape("adjacency", adjacency, None, n, n)
    a = adjacency.to(torch.float64)
    square = a @ a
    away = 1.0 - torch.eye(n, dtype=a.dtype)
    two = square * away
    three_cycles = (square * a).sum(2) / 2
    four_cycles = (two * (two - 1) / 2).sum(2)

    # Indexed [graph, u, v, inner node]; u and v are never inner nodes since A has no loops.
    first, last = a.unsqueeze(2), a.unsqueeze(1)
    not_v, not_u = away.unsqueeze(0), away.unsqueeze(1)
    r = first * not_v * (square.unsqueeze(1) - first * a.unsqueeze(3))
    c = last * not_u * (square.unsqueeze(2) - last * a.unsqueeze(3))
    middle = first * last
    three = r.sum(3)
    five = (square * three - (middle * (r + c)).sum(3)) * away
    five_cycles = five.sum(2) / 2

    mirrored = ((middle @ a.unsqueeze(1)) * middle).sum(3)
    pairs = three.square() + three + mirrored - (r.square() + c.square() + 2 * r * c).sum(3)
    six_cycles = (pairs * away).sum(2) / 2
    return torch.stack([three_cycles, four_cycles, five_cycles, six_cycles], dim=2)


def random_regular_graphs(count: int, n: int, degree: int, rng: np.random.Generator) -> np.ndarray:
    """Simple ``degree``-regular graphs as adjacency matrices [count, n, n].

    A circulant graph, randomised by switching pairs of edges (a-b, c-d to a-d, c-b) where that keeps it simple: many
    times its number of edges, for all graphs at once.
    """
    offsets = [*range(1, degree // 2 + 1), *([n // 2] if degree % 2 else [])]
    base = np.zeros((n, n), dtype=bool)
    for offset in offsets:
        base[np.arange(n), (np.arange(n) + offset) % n] = True
    base |= base.T
    ends = np.stack(np.nonzero(np.triu(base)))
    edges = np.broadcast_to(ends.T, (count, *ends.T.shape)).copy()
    adjacency = np.broadcast_to(base, (count, n, n)).copy()
    every = np.arange(count)
    for _ in range(20 * edges.shape[1]):
        i, j = rng.integers(edges.shape[1], size=(2, count))
        flip = rng.random(count) < 0.5
        a, b = edges[every, i].T
        c, d = edges[every, j].T
        c, d = np.where(flip, d, c), np.where(flip, c, d)
        good = (a != c) & (a != d) & (b != c) & (b != d) & ~adjacency[every, a, d] & ~adjacency[every, c, b]
        g, a, b, c, d, i, j = every[good], a[good], b[good], c[good], d[good], i[good], j[good]
        for u, v, present in ((a, b, False), (c, d, False), (a, d, True), (c, b, True)):
            adjacency[g, u, v] = adjacency[g, v, u] = present
        edges[g, i] = np.stack([a, d], axis=1)
        edges[g, j] = np.stack([c, b], axis=1)
    return adjacency


def cycle_counting(graphs: int = 5000, seed: int = 0) -> list[Data]:
    """Random regular graphs with n edges removed from each, and ``data.y [n, 4]``, the 3- to 6-cycles through a node.

    A quarter each have n = 10, 15, 20, 30 nodes, of degree 6, 6, 5, 5 before the removal; in random order, without
    node features. The same seed gives the same graphs.
    """
    check_positive("graphs", graphs)
    rng = np.random.default_rng(seed)
    data = []
    for part, (n, degree) in enumerate(SIZES_AND_DEGREES):
        count = len(range(part, graphs, len(SIZES_AND_DEGREES)))
        adjacency = random_regular_graphs(count, n, degree, rng)
        for matrix in adjacency:
            ends = np.stack(np.nonzero(np.triu(matrix)))
            gone = ends[:, rng.choice(ends.shape[1], size=n, replace=False)]
            matrix[gone[0], gone[1]] = matrix[gone[1], gone[0]] = False
        targets = torch.cat([cycle_counts(chunk) for chunk in torch.from_numpy(adjacency).split(256)])
        for matrix, target in zip(adjacency, targets, strict=True):
            edge_index = torch.from_numpy(np.stack(np.nonzero(matrix)))
            data.append(Data(edge_index=edge_index, y=target.to(torch.get_default_dtype()), num_nodes=n))
    return [data[i] for i in rng.permutation(graphs)]
