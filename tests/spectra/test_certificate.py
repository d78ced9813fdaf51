"""Certificate: the measurements, and the limits they are judged by."""

import math

import numpy as np
import pytest
from closed_forms import path

from gssc.spectra.certificate import judge, orthogonality, rayleigh_ritz, residual_norms
from gssc.spectra.operators import build_operator


def test_residual_and_orthogonality_measure_what_they_say():
    matrix = build_operator(path(30), "combinatorial")
    values, vectors = np.linalg.eigh(matrix.toarray())
    assert residual_norms(matrix, values, vectors).max() < 1e-13
    assert orthogonality(vectors) < 1e-13
    np.testing.assert_allclose(residual_norms(matrix, values + 1e-3, vectors), 1e-3, rtol=1e-9)
    assert orthogonality(2.0 * vectors) == pytest.approx(3.0)
    assert orthogonality(np.zeros((5, 0))) == 0.0


def test_rayleigh_ritz_finds_the_eigenvectors_in_a_span():
    matrix = build_operator(path(30), "combinatorial")
    values, vectors = np.linalg.eigh(matrix.toarray())
    mixed = vectors[:, 2:6] @ np.random.default_rng(0).standard_normal((4, 4))
    pairs = rayleigh_ritz(matrix, mixed)
    np.testing.assert_allclose(pairs.values, values[2:6], atol=1e-12)
    np.testing.assert_allclose(np.abs(pairs.vectors.T @ vectors[:, 2:6]), np.eye(4), atol=1e-9)
    assert pairs.residuals.max() < 1e-12


@pytest.mark.parametrize(
    ("residual", "orthogonal", "gap", "scale", "fine"),
    [
        (0.9e-5, 1e-12, math.inf, 2.0, True),
        (1.1e-5, 1e-12, math.inf, 2.0, False),
        (1e-6, 1e-12, 0.9e-5, 2.0, False),
        (1e-6, 1e-12, 1.1e-5, 2.0, True),
        (1e-4, 1e-12, math.inf, 1e8, True),
        (1e-4, 1e-12, math.inf, 1e6, False),
        (0.0, 1e-7, math.inf, 2.0, False),
        (math.nan, 0.0, math.inf, 2.0, False),
        (0.0, math.nan, math.inf, 2.0, False),
    ],
)
def test_limits(residual, orthogonal, gap, scale, fine):
    assert (judge(residual, orthogonal, gap, scale) is None) == fine
