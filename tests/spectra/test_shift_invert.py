"""Shift-invert Lanczos: multiplicities, a known kernel, an indefinite end."""

import numpy as np
import pytest
from closed_forms import grid, hypercube, path, star, zero_mode_basis

from gssc.spectra.certificate import SpectrumError
from gssc.spectra.factorization import solve_shift_invert
from gssc.spectra.operators import build_operator
from gssc.spectra.sparse_operator import SparseOperator


@pytest.mark.parametrize(
    "graph", [path(400), grid(20, 20), hypercube(8), star(300)], ids=["path", "grid", "cube", "star"]
)
def test_laplacian_against_dense(graph):
    matrix = build_operator(graph, "combinatorial")
    pairs = solve_shift_invert(matrix, 20, 0.0, zero_mode_basis(graph, "combinatorial"))
    np.testing.assert_allclose(pairs.values, np.linalg.eigvalsh(matrix.toarray())[1:21], atol=1e-10)
    assert pairs.residuals.max() <= 1e-9
    assert pairs.orthogonality <= 1e-10


@pytest.mark.parametrize(
    "graph", [path(400), grid(20, 20), hypercube(8), star(300)], ids=["path", "grid", "cube", "star"]
)
def test_low_end_of_the_adjacency_matrix(graph):
    bound = SparseOperator.from_scipy(graph).bound()
    values = np.linalg.eigvalsh(graph.toarray())
    assert bound >= values.max() - 1e-12
    pairs = solve_shift_invert(graph, 12, -bound)
    np.testing.assert_allclose(pairs.values, values[:12], atol=1e-10)


def test_failed_factorisation_is_an_error(monkeypatch):
    monkeypatch.setattr("gssc.spectra.factorization.factorize", lambda *args: None)
    with pytest.raises(SpectrumError, match="factorisation failed"):
        solve_shift_invert(path(50), 3, -2.0)
