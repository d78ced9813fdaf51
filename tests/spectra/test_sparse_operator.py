"""Components and Laplacians built on a device equal those of the host, and so do spectra solved through them."""

from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import grid, path, random_graph, zero_mode_basis
from scipy.sparse.csgraph import connected_components

from gssc.spectra import solve as module
from gssc.spectra.components import find_components
from gssc.spectra.operators import build_operator, smallest_nodes
from gssc.spectra.solve import solve
from gssc.spectra.sparse_operator import DeviceGraph, SparseOperator

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def weighted(n, seed):
    rng = np.random.default_rng(seed)
    a = random_graph(n, 8, seed)
    a = a.multiply(sp.csr_array(rng.random((n, n)) + 0.1))
    a = a + sp.diags_array(rng.random(n) * (rng.random(n) < 0.2))  # some self-loops
    return sp.csr_array((a + a.T).tocsr())


def shuffled_path(n):
    order = np.random.default_rng(0).permutation(n)
    return path(n)[order][:, order].tocsr()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "graph",
    [
        random_graph(3000, 1, 0),
        random_graph(3000, 2, 1),
        shuffled_path(5000),
        grid(40, 50),
        sp.csr_array((7, 7)),
        sp.csr_array((1, 1)),
    ],
    ids=["forest", "critical", "path", "grid", "edgeless", "node"],
)
def test_components(graph, device):
    label = DeviceGraph(graph, device).labels().cpu().numpy()
    count, other = connected_components(graph, directed=False)
    assert len(set(zip(label, other, strict=True))) == count == np.unique(label).size
    assert (label <= np.arange(label.size)).all()
    expected, got = find_components(smallest_nodes(graph)), find_components(label)
    assert all(np.array_equal(mine, nodes) for mine, nodes in zip(got, expected, strict=True))
    assert sum(len(nodes) for nodes in got) == count
    for mine in (members for nodes in got for members in nodes):
        assert np.unique(other[mine]).size == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
def test_laplacian_and_zero_mode(operator, device):
    graph = weighted(300, 0)
    matrix, zero = DeviceGraph(graph, device).laplacian(operator)
    expected = build_operator(graph, operator).toarray()
    np.testing.assert_allclose(matrix.csr().to_dense().cpu().numpy(), expected, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(zero.cpu().numpy(), zero_mode_basis(graph, operator)[:, 0], rtol=1e-12)
    assert matrix.bound() == pytest.approx(SparseOperator.from_scipy(build_operator(graph, operator)).bound(), rel=0.2)
    assert np.abs(np.linalg.eigvalsh(expected)).max() <= matrix.bound() * (1 + 1e-12)


def test_negative_weight_is_refused():
    graph = path(5)
    graph.data[:] = -1.0
    with pytest.raises(ValueError, match="edge_weight"):
        DeviceGraph(graph, "cpu").laplacian("sym")


def test_shifted_operator():
    matrix = build_operator(weighted(50, 1), "adjacency")
    got = SparseOperator.from_scipy(matrix).csr(0.3, 2.0).to_dense().numpy()
    np.testing.assert_allclose(got, (matrix.toarray() - 0.3 * np.eye(50)) / 2.0, atol=1e-14)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
@pytest.mark.parametrize("zero_modes", ["keep", "drop"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_spectrum_by_way_of_the_device(monkeypatch, operator, zero_modes, pieces, device):
    graph = sp.csr_array(sp.block_diag([grid(30, 40), grid(25, 45)][:pieces]).tocsr())
    expected = solve(graph, operator, 12, zero_modes=zero_modes)
    monkeypatch.setattr(module, "stays_on_device", lambda *_: True)
    got = solve(graph, operator, 12, zero_modes=zero_modes, solver="chebyshev", device=device)
    assert np.array_equal(got.mask, expected.mask)
    np.testing.assert_allclose(got.values, expected.values, rtol=0, atol=1e-9)
    matrix = build_operator(graph, operator)
    assert np.linalg.norm(matrix @ got.vectors - got.vectors * got.values, axis=0).max() <= 1e-5
    count = int(got.mask.sum())
    np.testing.assert_allclose(got.vectors[:, :count].T @ got.vectors[:, :count], np.eye(count), atol=1e-8)
    # The same subspaces.
    assert np.linalg.norm(expected.vectors[:, :count].T @ got.vectors[:, :count]) == pytest.approx(count**0.5, abs=1e-4)


def test_a_failing_device_solver_is_followed_on_the_host(monkeypatch):
    monkeypatch.setattr(module, "stays_on_device", lambda *_: True)
    fail = Mock(side_effect=MemoryError("full"))
    monkeypatch.setattr("gssc.spectra.solver_choice.ChebyshevBlock.solve", fail)
    rungs = [("chebyshev", 0), ("chebyshev", 1), ("shift_invert", 0)]
    monkeypatch.setattr("gssc.spectra.solver_choice.LargeComponent._rungs", lambda *_: list(rungs))
    got = solve(grid(40, 60), "sym", 6)
    assert fail.call_count == 2
    assert got.certificate.solver == "shift_invert"
    assert got.certificate.level == "proved"
