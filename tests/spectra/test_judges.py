import numpy as np
from closed_forms import solve_dense


def test_pairs_are_exact_to_the_accuracy_stated():
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((9, 9))
    matrix = matrix + matrix.T
    values, vectors, accuracy = solve_dense(matrix)
    assert (np.diff(values) >= 0).all()
    assert np.linalg.norm(matrix @ vectors - vectors * values, axis=0).max() <= accuracy < 1e-12
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(9), atol=1e-13)


def test_empty_and_zero_matrices():
    assert solve_dense(np.zeros((0, 0)))[0].shape == (0,)
    values, _, accuracy = solve_dense(np.zeros((3, 3)))
    assert accuracy == 0.0
    assert (values == 0).all()
