import numpy as np
import pytest
from graphs import cycle, dense_adjacency, graphs, random_graph
from hypothesis import given

from gssc.spectra import random_walk
from gssc.spectra.operators import adjacency_matrix
from gssc.spectra.random_walk import return_probabilities


def reference(data, steps):
    a = dense_adjacency(data)
    degree = a.sum(1, keepdims=True)
    walk = np.divide(a, degree, out=np.zeros_like(a), where=degree > 0)
    return np.stack([np.diag(np.linalg.matrix_power(walk, t)) for t in range(1, steps + 1)], axis=1)


def probabilities(data, steps):
    return return_probabilities(adjacency_matrix(data.edge_index, data.get("edge_weight"), data.num_nodes), steps)


@given(graphs())
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 9, 16, 20, 21])
def test_equals_powers_of_the_walk(steps, data):
    np.testing.assert_allclose(probabilities(data, steps), reference(data, steps), atol=1e-13)


@pytest.mark.parametrize("steps", [1, 2, 7, 8])
def test_sparse_powers_equal_dense_ones(steps, monkeypatch):
    data = random_graph(30, 0.1)
    monkeypatch.setattr(random_walk, "DENSE_NODES", 0)
    np.testing.assert_allclose(probabilities(data, steps), reference(data, steps), atol=1e-13)


@pytest.mark.parametrize("entries", [1, 300, 10**6])
def test_blocks_of_rows_equal_the_whole(entries, monkeypatch):
    data = random_graph(30, 0.1)
    monkeypatch.setattr(random_walk, "DENSE_NODES", 0)
    monkeypatch.setattr(random_walk, "BLOCK_ENTRIES", entries)
    monkeypatch.setattr(random_walk, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(probabilities(data, 7), reference(data, 7), atol=1e-13)


def test_odd_steps_never_return_on_an_even_cycle():
    assert (probabilities(cycle(6), 5)[:, ::2] == 0).all()
