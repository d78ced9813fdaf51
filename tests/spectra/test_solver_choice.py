"""The rule that picks a solver, and the order in which others follow."""

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import grid, path, star, zero_mode_basis

from gssc.spectra.certificate import SpectrumError
from gssc.spectra.operators import build_operator
from gssc.spectra.solver_choice import DENSE_FIRST, DENSE_LIMIT, LargeComponent, SolverSettings, dense_size
from gssc.spectra.sparse_operator import SparseOperator


def component(adjacency, solver="auto", device="cpu"):
    matrix = build_operator(adjacency, "sym")
    zero_mode = torch.from_numpy(zero_mode_basis(adjacency, "sym")[:, 0])
    settings = SolverSettings(solver, device, seed=0)
    return LargeComponent(lambda: matrix, zero_mode, True, np.arange(matrix.shape[0]), settings)


def expander(n):
    return sp.csr_array(nx.to_scipy_sparse_array(nx.random_regular_graph(6, n, seed=0), dtype=float))


def test_small_components_are_dense():
    assert dense_size("auto", 33) == DENSE_FIRST
    assert dense_size("auto", 200) == 6 * 200 + 48
    assert dense_size("auto", 10**6) == dense_size("dense", 1) == DENSE_LIMIT
    assert dense_size("chebyshev", 33) < DENSE_FIRST


def test_where_factorisation_is_cheap_shift_invert_comes_first_and_chebyshev_otherwise():
    assert component(grid(50, 50)).rungs[0] == ("shift_invert", 0)
    assert component(expander(5000)).rungs[:2] == [("chebyshev", 0), ("chebyshev", 1)]


def test_on_a_gpu_chebyshev_comes_first():
    assert component(grid(50, 50), device="cuda").rungs[0] == ("chebyshev", 0)


def test_dense_is_a_choice_only_below_its_limit():
    assert "dense" in dict(component(grid(30, 30)).rungs)
    assert "dense" not in dict(component(grid(50, 50)).rungs)


@pytest.mark.parametrize("solver", ["chebyshev", "shift_invert", "dense"])
def test_a_forced_solver_is_not_followed_by_another(solver):
    assert {name for name, _ in component(grid(30, 30), solver).rungs} == {solver}


def test_reasons_are_collected_when_no_solver_is_left():
    one = component(grid(30, 30))
    one.rungs = [("shift_invert", 0)]
    one.climb(4)
    with pytest.raises(SpectrumError, match=r"component of 900 nodes, .*: shift_invert: not good enough"):
        one.climb(4, "not good enough")


@pytest.mark.parametrize("adjacency", [path(40), star(30), grid(6, 7)], ids=["path", "star", "grid"])
def test_bound_holds_and_is_close(adjacency):
    largest = np.abs(np.linalg.eigvalsh(adjacency.toarray())).max()
    bound = SparseOperator.from_scipy(adjacency).bound()
    assert largest <= bound * (1 + 1e-12)
    assert bound <= 3 * largest
