"""Krylov space of the filtered matrix: fewer products than block iteration, restarts, outliers, clusters."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import complete, grid, hypercube, path, random_graph, star, zero_mode_basis

from gssc.spectra import krylov as module
from gssc.spectra.chebyshev import ChebyshevBlock
from gssc.spectra.components import find_components
from gssc.spectra.krylov import krylov
from gssc.spectra.operators import build_operator, smallest_nodes
from gssc.spectra.sparse_operator import SparseOperator


def solver(graph, seed=0):
    operator = SparseOperator.from_scipy(build_operator(graph, "sym"))
    return ChebyshevBlock(operator, 2.0, torch.from_numpy(zero_mode_basis(graph, "sym")), seed)


def truth(graph):
    return np.linalg.eigvalsh(build_operator(graph, "sym").toarray())[1:]


def connected(graph):
    nodes = find_components(smallest_nodes(graph))[-1][-1]
    return graph[nodes][:, nodes].tocsr()


def columns(monkeypatch, graph, method):
    """Pairs, and sparse products times columns in filters."""
    spent = []
    filtered = ChebyshevBlock.filtered

    def counting(self, block, degree, *rest, **options):
        spent.append(degree * block.shape[1])
        return filtered(self, block, degree, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ChebyshevBlock, "filtered", counting)
        return solver(graph).solve(32, method=method), sum(spent)


@pytest.mark.parametrize("graph", [grid(60, 61), connected(random_graph(4000, 8, 1))], ids=["grid", "random"])
def test_half_the_products_of_block_iteration_for_the_same_values(monkeypatch, graph):
    pairs, cost = columns(monkeypatch, graph, "krylov")
    other, more = columns(monkeypatch, graph, "iterate")
    assert 2 * cost < more
    np.testing.assert_allclose(pairs.values, other.values, rtol=0, atol=1e-9)


def counted(monkeypatch):
    """A list that grows with every restart, by the number of pairs kept."""
    kept = []
    restart = module._Space.restart

    def counting(self, values, rotation, closed, *rest):
        kept.append(closed.size)
        return restart(self, values, rotation, closed, *rest)

    monkeypatch.setattr(module._Space, "restart", counting)
    return kept


def test_restarts_converge_to_the_same(monkeypatch):
    graph = grid(40, 41)
    monkeypatch.setattr(module, "RISE", 0.5)  # filters so weak that the space is full before anything converged
    restarted = counted(monkeypatch)
    pairs = solver(graph).solve(20)
    assert restarted
    np.testing.assert_allclose(pairs.values, truth(graph)[:20], rtol=0, atol=1e-9)
    assert pairs.orthogonality < 1e-10


def test_outliers_below_the_bulk():
    # Five random graphs joined by single edges: four tiny eigenvalues, then a gap.
    parts = [connected(random_graph(300, 10, seed)) for seed in range(5)]
    graph = sp.block_diag(parts).tolil()
    at = np.cumsum([0] + [part.shape[0] for part in parts])
    for left, right in pairwise(at[:-1]):
        graph[left, right] = graph[right, left] = 1.0
    graph = sp.csr_array(graph.tocsr())
    one = solver(graph)
    assert krylov(one, 16) == 16
    expected = truth(graph)[:16]
    assert expected[3] < 0.01 < 0.1 < expected[4]
    np.testing.assert_allclose(one.values[:16], expected, rtol=0, atol=1e-8)
    assert one.residuals[:16].max() <= one.target(16)


def test_a_filter_held_back_by_outliers_changes_once(monkeypatch):
    # Pendant paths: twelve eigenvalues far below an edge of many close ones.
    core = connected(random_graph(3000, 10, 0))
    n = core.shape[0]
    lengths = [7, 6, 6, 5, 5, 5, 4, 4, 4, 4, 4, 4]
    first = np.concatenate(
        [[17 * i, *range(at, at + m - 1)] for i, (at, m) in enumerate(zip(starts(n, lengths), lengths, strict=True))]
    )
    second = np.arange(n, n + sum(lengths))
    total = n + sum(lengths)
    tails = sp.csr_array((np.ones(first.size), (first, second)), shape=(total, total))
    core.resize((total, total))
    graph = sp.csr_array((core + tails + tails.T).tocsr())
    restarted = counted(monkeypatch)
    one = solver(graph)
    pairs = one.solve(32)
    expected = truth(graph)[:32]
    assert expected[11] < 0.1 < 0.15 < expected[12]
    assert len(restarted) == 1
    assert restarted[0] >= 12
    np.testing.assert_allclose(pairs.values, expected, rtol=0, atol=1e-8)
    assert pairs.orthogonality < 1e-10
    assert one.work < 1500


def starts(n, lengths):
    return n + np.concatenate([[0], np.cumsum(lengths)[:-1]])


@pytest.mark.parametrize("graph", [hypercube(10), star(2000), complete(600)], ids=["hypercube", "star", "complete"])
def test_many_copies_are_left_to_block_iteration(graph):
    assert krylov(solver(graph), 20) is None


def test_small_matrices_are_left_to_block_iteration():
    assert krylov(solver(path(200)), 20) is None


def test_density_counts_eigenvalues():
    for graph in (grid(36, 37), connected(random_graph(1300, 8, 3))):
        values = truth(graph)
        low, edges = solver(graph).spectral_edges([16, 48])
        assert values[0] - 1e-9 <= low <= values[8]
        for edge, count in zip(edges, [16, 48], strict=True):
            assert count / 2 <= (values <= edge).sum() <= 2 * count


def test_density_bounds_the_spectrum():
    one = solver(connected(random_graph(1000, 30, 3)))
    one.spectral_edges([4])
    assert truth(connected(random_graph(1000, 30, 3)))[-1] <= one.upper <= 2.0 + 1e-9


def test_the_first_check_of_a_complete_spectrum_passes():
    graph = grid(63, 63)
    one = solver(graph)
    values = one.solve(8).values
    assert values[6] < values[7] - 1e-3
    assert one.miss_probability(7, (values[6] + 7 * values[7]) / 8) < 1e-6
