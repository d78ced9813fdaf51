import networkx as nx
import numpy as np
import pytest
import torch
from graphs import complete, dense_adjacency, random_graph
from hypothesis import given
from hypothesis import strategies as st

from gssc.datasets import cycle_counting, cycle_counts
from gssc.datasets.synthetic import SIZES_AND_DEGREES, random_regular_graphs


def enumerate_cycles(data):
    graph = nx.from_numpy_array(dense_adjacency(data))
    counts = np.zeros((data.num_nodes, 4))
    for found in nx.simple_cycles(graph, length_bound=6):
        counts[found, len(found) - 3] += 1
    return counts


@given(st.integers(1, 9), st.floats(0.2, 1.0), st.integers(0, 10**6))
def test_counts_equal_enumeration(n, p, seed):
    data = random_graph(n, p, seed)
    counts = cycle_counts(torch.from_numpy(dense_adjacency(data))[None])[0]
    np.testing.assert_array_equal(counts.numpy(), enumerate_cycles(data))


def test_counts_of_a_complete_graph():
    counts = cycle_counts(torch.from_numpy(dense_adjacency(complete(7)))[None])[0]
    assert counts[0].tolist() == [6 * 5 / 2, 6 * 5 * 4 / 2, 6 * 5 * 4 * 3 / 2, 6 * 5 * 4 * 3 * 2 / 2]


@pytest.mark.parametrize(("n", "degree"), SIZES_AND_DEGREES)
def test_random_regular_graphs_are_simple_regular_and_different(n, degree):
    a = random_regular_graphs(20, n, degree, np.random.default_rng(0))
    assert (a == a.transpose(0, 2, 1)).all()
    assert (a.sum(2) == degree).all()
    assert not a[:, np.arange(n), np.arange(n)].any()
    assert len({matrix.tobytes() for matrix in a}) == 20
    # Far from the circulant they start from: an edge is present in about degree / (n - 1) of the graphs.
    assert abs(a[:, 0, 1].mean() - degree / (n - 1)) < 0.35


def test_dataset_has_the_stated_sizes_and_labels():
    data = cycle_counting(40, seed=1)
    assert sorted({graph.num_nodes for graph in data}) == [10, 15, 20, 30]
    for graph in data[:6]:
        n, degree = graph.num_nodes, dict(SIZES_AND_DEGREES)[graph.num_nodes]
        assert graph.num_edges == n * degree - 2 * n
        np.testing.assert_array_equal(graph.y.numpy(), enumerate_cycles(graph))


def test_same_seed_same_graphs():
    one, same, other = cycle_counting(8, seed=1), cycle_counting(8, seed=1), cycle_counting(8, seed=2)
    assert all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(one, other, strict=True))
