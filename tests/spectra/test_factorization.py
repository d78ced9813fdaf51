"""Factorisation: the price is estimated rightly, and inertia counts eigenvalues, or says that it cannot."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from closed_forms import closed_forms, complete, cycle, disjoint, grid, path, product, random_graph, reweighted, star

from gssc.spectra.factorization import elimination_width, factorize, is_cheap, negative_count
from gssc.spectra.operators import OPERATORS, build_operator


def test_width_of_trees_grids_and_expanders():
    assert elimination_width(build_operator(star(5000), "sym")) == 1
    assert elimination_width(build_operator(path(5000), "sym")) == 1
    assert 30 <= elimination_width(build_operator(grid(30, 200), "sym")) <= 60
    assert elimination_width(build_operator(random_graph(5000, 8), "sym")) > 1500


def test_only_graphs_with_small_separators_are_cheap():
    assert is_cheap(build_operator(grid(300, 300), "sym"))
    assert is_cheap(build_operator(star(50_000), "sym"))
    assert not is_cheap(build_operator(random_graph(10_000, 4), "sym"))
    assert not is_cheap(build_operator(product(grid(50, 50), path(50)), "sym"))
    assert not is_cheap(build_operator(complete(1600), "sym"))


def test_the_estimate_leaves_the_matrix_alone():
    matrix = build_operator(grid(9, 9), "sym")
    before = matrix.toarray()
    elimination_width(matrix)
    np.testing.assert_array_equal(matrix.toarray(), before)


@pytest.mark.parametrize(("name", "operator"), list(closed_forms()))
def test_count_of_closed_forms(name, operator):
    adjacency, values = closed_forms()[name, operator]
    matrix = build_operator(adjacency, operator)
    rng = np.random.default_rng(0)
    for shift in rng.uniform(values.min() - 0.1, values.max() + 0.1, 6):
        distance = np.abs(values - shift).min()
        counted = negative_count(matrix, shift, 0.5 * distance)
        assert counted is None or counted == (values < shift).sum()
        if name in ("path", "grid", "cycle") and distance > 1e-6:
            assert counted is not None


@pytest.mark.parametrize("operator", OPERATORS)
def test_count_with_extreme_weights_is_right_or_refused(operator):
    matrix = build_operator(reweighted(grid(15, 20), -6, 6), operator)
    values = np.linalg.eigvalsh(matrix.toarray())
    counted = 0
    for low, high in pairwise(values[:41]):
        found = negative_count(matrix, (low + high) / 2, (high - low) / 4)
        assert found is None or found == (values < (low + high) / 2).sum()
        counted += found is not None
    assert counted >= 20


def test_singular_shift_is_no_proof():
    matrix = build_operator(disjoint(path(2), cycle(4)), "combinatorial")
    assert negative_count(matrix, 2.0, 1e-3) is None
    assert factorize(sp.csr_array((3, 3)), 0.0) is None
