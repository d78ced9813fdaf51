"""LOBPCG: against dense, and a clear error without pyamg."""

import sys

import numpy as np
import pytest
from closed_forms import grid, path, zero_mode_basis

from gssc.spectra.lobpcg import solve_lobpcg
from gssc.spectra.operators import build_operator
from gssc.spectra.solve import solve


def test_against_dense():
    pytest.importorskip("pyamg")
    graph = grid(25, 30)
    matrix = build_operator(graph, "sym")
    pairs = solve_lobpcg(matrix, 12, 0.0, zero_mode_basis(graph, "sym"))
    np.testing.assert_allclose(pairs.values, np.linalg.eigvalsh(matrix.toarray())[1:13], atol=1e-8)
    assert pairs.residuals.max() <= 1e-6


def test_missing_pyamg_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyamg", None)
    with pytest.raises(ValueError, match="pip install pyamg"):
        solve(path(300), "sym", 4, solver="lobpcg")
