"""Large connected graphs for benchmarks, generated in array operations: the adjacency matrix of each, [n, n]."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree


def geometric(n: int, seed: int = 0) -> sp.csr_array:
    """Points in the unit square, joined within the radius that gives 12 neighbours on average."""
    points = np.random.default_rng(seed).random((n, 2))
    pairs = cKDTree(points).query_pairs((12.0 / (np.pi * n)) ** 0.5, output_type="ndarray")
    return _connected(pairs[:, 0], pairs[:, 1], n)


def grid(n: int, seed: int = 0) -> sp.csr_array:
    """The square grid nearest to n nodes; its eigenvalues come in pairs."""
    side = round(n**0.5)
    index = np.arange(side * side).reshape(side, side)
    first = np.concatenate([index[:, :-1].ravel(), index[:-1].ravel()])
    second = np.concatenate([index[:, 1:].ravel(), index[1:].ravel()])
    return _connected(first, second, side * side)


def powerlaw(n: int, seed: int = 0) -> sp.csr_array:
    """Every node joins 5 earlier ones, t = ⌊i u²⌋, u uniform: degrees fall like t^-1/2, a power law of exponent 3."""
    rng = np.random.default_rng(seed)
    source = np.repeat(np.arange(1, n), 5)
    return _connected(source, (source * rng.random(source.size) ** 2).astype(np.int64), n)


def random(n: int, seed: int = 0) -> sp.csr_array:
    """Uniform random edges, n/1000 neighbours on average up to 100,000 nodes (10 at least), 10 beyond."""
    degree = max(10, n // 1000) if n <= 100_000 else 10
    ends = np.random.default_rng(seed).integers(0, n, (2, n * degree // 2))
    return _connected(ends[0], ends[1], n)


GRAPHS: dict[str, Callable[[int], sp.csr_array]] = {
    "geometric": geometric,
    "grid": grid,
    "powerlaw": powerlaw,
    "random": random,
}


def _connected(first: np.ndarray, second: np.ndarray, n: int) -> sp.csr_array:
    """The largest component of the simple graph with these edges."""
    proper = first != second
    ends = np.concatenate([first[proper], second[proper]]), np.concatenate([second[proper], first[proper]])
    a = sp.csr_array((np.ones(ends[0].size), ends), shape=(n, n))
    a.sum_duplicates()
    a.data[:] = 1.0
    _, label = connected_components(a, directed=True, connection="strong")
    keep = np.flatnonzero(label == np.bincount(label).argmax())
    return a if keep.size == n else a[keep][:, keep].tocsr()
