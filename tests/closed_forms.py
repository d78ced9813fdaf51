"""Graphs with known spectra and others that eigensolvers trip over, as symmetric CSR matrices; plain judges of both."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from gssc.spectra.operators import degrees


def from_edges(edges, n, weight=None):
    edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    weight = np.ones(len(edges)) if weight is None else weight
    a = sp.csr_array((weight, (edges[:, 0], edges[:, 1])), shape=(n, n))
    return (a + a.T).tocsr()


def path(n):
    return from_edges(np.stack([np.arange(n - 1), np.arange(1, n)], 1), n)


def cycle(n):
    return from_edges(np.stack([np.arange(n), (np.arange(n) + 1) % n], 1), n)


def star(n):
    return from_edges(np.stack([np.zeros(n - 1, dtype=int), np.arange(1, n)], 1), n)


def complete(n):
    return sp.csr_array(np.ones((n, n)) - np.eye(n))


def bipartite(a, b):
    return sp.csr_array(np.block([[np.zeros((a, a)), np.ones((a, b))], [np.ones((b, a)), np.zeros((b, b))]]))


def product(a, b):
    """The Cartesian product; spectra of A and of D - A add."""
    return (sp.kron(a, sp.eye_array(b.shape[0])) + sp.kron(sp.eye_array(a.shape[0]), b)).tocsr()


def grid(a, b):
    return product(path(a), path(b))


def hypercube(d):
    out = path(2)
    for _ in range(d - 1):
        out = product(out, path(2))
    return out


def disjoint(*graphs):
    return sp.block_diag(graphs).tocsr().astype(np.float64)


def random_graph(n, degree, seed=0):
    edges = np.random.default_rng(seed).integers(0, n, (n * degree // 2, 2))
    a = from_edges(edges[edges[:, 0] != edges[:, 1]], n)
    a.data[:] = 1.0
    return a


def reweighted(a, low, high, seed=0):
    """Random weights, log-uniform between 10^low and 10^high."""
    upper = sp.triu(a, k=1).tocsr()
    upper.data = 10.0 ** np.random.default_rng(seed).uniform(low, high, upper.nnz)
    return (upper + upper.T).tocsr()


def sums(a, b):
    return (a[:, None] + b[None, :]).ravel()


def closed_forms():
    """{(graph's name, operator): (adjacency, all eigenvalues)}."""

    def cosines(count, period, start=0):
        return 2.0 * np.cos(np.pi * np.arange(start, start + count) / period)

    n = 150
    out = {
        ("path", "combinatorial"): (path(n), 2.0 - cosines(n, n)),
        ("path", "sym"): (path(n), 1.0 - cosines(n, n - 1) / 2.0),
        ("path", "adjacency"): (path(n), cosines(n, n + 1, 1)),
        ("grid", "combinatorial"): (grid(12, 13), sums(2.0 - cosines(12, 12), 2.0 - cosines(13, 13))),
        ("grid", "adjacency"): (grid(12, 13), sums(cosines(12, 13, 1), cosines(13, 14, 1))),
    }
    ring = 2.0 * np.cos(2.0 * np.pi * np.arange(n) / n)
    cube = np.repeat(8.0 - 2.0 * np.arange(9), [1, 8, 28, 56, 70, 56, 28, 8, 1])
    for name, graph, values, degree in [
        ("cycle", cycle(n), ring, 2.0),
        ("complete", complete(n), np.concatenate([[n - 1.0], -np.ones(n - 1)]), n - 1.0),
        ("hypercube", hypercube(8), cube, 8.0),
    ]:
        out[name, "adjacency"] = graph, values
        out[name, "combinatorial"] = graph, degree - values
        out[name, "sym"] = graph, 1.0 - values / degree
    for name, graph, a, b in [("star", star(n), 1, n - 1), ("bipartite", bipartite(70, 90), 70, 90)]:
        both = np.sqrt(a * b) * np.array([1.0, -1.0])
        out[name, "adjacency"] = graph, np.concatenate([both, np.zeros(a + b - 2)])
        out[name, "sym"] = graph, np.concatenate([[0.0, 2.0], np.ones(a + b - 2)])
        out[name, "combinatorial"] = graph, np.concatenate([[0.0, a + b], np.full(b - 1, a), np.full(a - 1, b)])
    return out


def zero_mode_basis(adjacency, operator):
    """The exact kernel of a Laplacian, [n, number of components], orthonormal.

    One vector per connected component: constant for D - A, proportional to sqrt(degree) for the normalised operator.
    """
    count, label = connected_components(adjacency, directed=False)
    size = np.ones(adjacency.shape[0])
    if operator == "sym":
        degree = degrees(adjacency)
        size = np.where(degree > 0, degree, 1.0)
    total = np.bincount(label, weights=size, minlength=count)
    basis = np.zeros((adjacency.shape[0], count))
    basis[np.arange(adjacency.shape[0]), label] = np.sqrt(size / total[label])
    return basis


def solve_dense(matrix):
    """Eigenvalues [n] ascending, eigenvectors [n, n] as columns, and the accuracy reached.

    The accuracy is the largest residual ‖L p - λ p‖, and at least machine precision times ‖L‖ (a residual can be zero
    by luck): no eigenvalue is off by more.
    """
    values, vectors = np.linalg.eigh(matrix)
    residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    norm = float(np.abs(values).max(initial=0.0))
    return values, vectors, max(float(residual.max(initial=0.0)), float(np.finfo(np.float64).eps) * norm)
