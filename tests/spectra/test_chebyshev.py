"""Chebyshev iteration: the filter, both ends, degenerate clusters, and a check that notices what is missing."""

import numpy as np
import pytest
import torch
from closed_forms import complete, grid, hypercube, path, random_graph, star, zero_mode_basis

from gssc.spectra.certificate import Pairs, SpectrumError
from gssc.spectra.chebyshev import ChebyshevBlock
from gssc.spectra.components import find_components
from gssc.spectra.operators import build_operator, smallest_nodes
from gssc.spectra.sparse_operator import SparseOperator

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def laplacian(adjacency):
    return build_operator(adjacency, "sym"), zero_mode_basis(adjacency, "sym")


def solver(matrix, upper, known=None, device="cpu", seed=0):
    known = None if known is None else torch.from_numpy(known)
    return ChebyshevBlock(SparseOperator.from_scipy(matrix, device), upper, known, seed)


@pytest.mark.parametrize("operator", ["sym", "adjacency"])
@pytest.mark.parametrize("single", [False, True])
def test_filter_is_the_chebyshev_polynomial(operator, single):
    matrix = build_operator(grid(5, 6), operator)
    block = solver(matrix, 4.0)
    values, vectors = np.linalg.eigh(matrix.toarray())
    x = np.random.default_rng(0).standard_normal((30, 3))
    for degree in (1, 2, 9):
        got = block.filtered(torch.as_tensor(x), degree, 0.5, single).numpy()
        t = (values - 2.25) / 1.75
        # T_m(t), outside [-1, 1] as well.
        grown = np.polynomial.chebyshev.chebval(t, np.eye(degree + 1)[degree])
        want = vectors @ (grown[:, None] * (vectors.T @ x))
        np.testing.assert_allclose(got, want, rtol=0, atol=(1e-4 if single else 1e-11) * np.abs(want).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["krylov", "iterate"])
@pytest.mark.parametrize(
    "graph",
    [grid(30, 31), random_graph(900, 8, 1), hypercube(10), star(900), complete(400)],
    ids=["grid", "random", "hypercube", "star", "complete"],
)
def test_against_dense(graph, method, device):
    nodes = find_components(smallest_nodes(graph))[-1][-1]
    matrix, known = laplacian(graph[nodes][:, nodes].tocsr())
    pairs = solver(matrix, 2.0, known, device).solve(20, method=method)
    truth = np.linalg.eigvalsh(matrix.toarray())[1:21]
    np.testing.assert_allclose(pairs.values, truth, atol=1e-7)
    assert pairs.residuals.max() <= 2e-6
    vectors = pairs.vectors.cpu().numpy()
    assert np.linalg.norm(matrix @ vectors - vectors * pairs.values, axis=0).max() <= 2.1e-6
    assert np.abs(known.T @ vectors).max() <= 1e-9
    assert pairs.orthogonality <= 1e-9


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("graph", [grid(30, 31), hypercube(10)], ids=["grid", "hypercube"])
def test_check_passes_what_is_complete_and_fails_what_is_not(graph, device):
    matrix, known = laplacian(graph)
    block = solver(matrix, 2.0, known, device)
    pairs = block.solve(20)
    kept = next(i for i in range(19, 0, -1) if pairs.values[i] - pairs.values[i - 1] > 1e-4)
    sigma = (pairs.values[kept - 1] + 7 * pairs.values[kept]) / 8
    assert block.miss_probability(kept, sigma) < 1e-6
    for missing in range(kept):
        left = np.delete(np.arange(20), missing)
        other = solver(matrix, 2.0, known, device, seed=1)
        other.load(Pairs(pairs.values[left], pairs.vectors[:, left], pairs.residuals[left], 0.0))
        assert other.miss_probability(kept - 1, sigma) > 1e-6


def test_check_of_poor_vectors_does_not_pass_by_luck():
    matrix, known = laplacian(grid(20, 21))
    values, vectors = np.linalg.eigh(matrix.toarray())
    rng = np.random.default_rng(0)
    block = solver(matrix, 2.0, known)
    for noise in (1e-6, 1e-2, 1.0):
        # 8 of the first 9 pairs, each disturbed.
        found = np.linalg.qr(np.delete(vectors[:, 1:10], 4, axis=1) + noise * rng.standard_normal((420, 8)) / 20)[0]
        ritz = np.einsum("ij,ij->j", found, matrix @ found)
        residual = np.linalg.norm(matrix @ found - found * ritz, axis=0)
        block.load(Pairs(ritz, found, residual, 0.0))
        assert block.miss_probability(8, (values[9] + values[10]) / 2) > 1e-6


@pytest.mark.parametrize("device", DEVICES)
def test_same_bytes(device):
    matrix, known = laplacian(random_graph(900, 12, 3))
    first = solver(matrix, 2.0, known, device, seed=5).solve(9)
    torch.manual_seed(1)
    second = solver(matrix, 2.0, known, device, seed=5).solve(9)
    assert torch.equal(first.vectors, second.vectors)


@pytest.mark.parametrize(("method", "module"), [("krylov", "krylov"), ("iterate", "chebyshev")])
def test_work_limit_is_an_error(monkeypatch, method, module):
    monkeypatch.setattr(f"gssc.spectra.{module}.WORK_LIMIT", 100)
    matrix, known = laplacian(path(3000))
    with pytest.raises(SpectrumError, match=r"after \d+ products"):
        solver(matrix, 2.0, known).solve(8, method=method)
