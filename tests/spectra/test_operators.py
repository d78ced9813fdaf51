import numpy as np
import pytest
import torch
from closed_forms import zero_mode_basis
from graphs import complete, dense_adjacency, graphs, path, two_triangles
from hypothesis import given

from gssc.spectra.operators import adjacency_matrix, build_operator

# The numbers of two graphs that share a matrix.
GRAPHS = torch.tensor([7, 9])


def adjacency(data, directed="symmetrize"):
    return adjacency_matrix(data.edge_index, data.get("edge_weight"), data.num_nodes, directed)


@given(graphs())
def test_adjacency_adds_multi_edges_and_keeps_loops(data):
    np.testing.assert_allclose(adjacency(data, "reject").toarray(), dense_adjacency(data), rtol=1e-12)


@given(graphs())
def test_laplacians_follow_their_formulas(data):
    a = dense_adjacency(data)
    degree = a.sum(1)
    scale = np.diag([d**-0.5 if d > 0 else 0.0 for d in degree])
    sym = np.diag((degree > 0).astype(float)) - scale @ a @ scale
    np.testing.assert_allclose(build_operator(adjacency(data), "combinatorial").toarray(), np.diag(degree) - a)
    np.testing.assert_allclose(build_operator(adjacency(data), "sym").toarray(), sym, atol=1e-14)


@given(graphs())
@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
def test_zero_modes_are_the_kernel(operator, data):
    a = adjacency(data)
    basis = zero_mode_basis(a, operator)
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-14)
    np.testing.assert_allclose(build_operator(a, operator) @ basis, 0.0, atol=1e-13)


def test_zero_modes_one_per_component():
    assert zero_mode_basis(adjacency(two_triangles()), "sym").shape == (6, 2)


def test_directed_edges_become_undirected_with_their_weight():
    one_way = torch.tensor([[0, 1], [1, 2]])
    expected = dense_adjacency(path(3))
    np.testing.assert_array_equal(adjacency_matrix(one_way, None, 3).toarray(), expected)
    both_ways = torch.tensor([[0, 1], [1, 0]])
    weights = torch.tensor([1.0, 3.0])
    np.testing.assert_array_equal(adjacency_matrix(both_ways, weights, 2).toarray(), [[0, 2], [2, 0]])


@pytest.mark.parametrize(
    ("edge_index", "weight", "message"),
    [
        (torch.tensor([[0, 5], [1, 0]]), None, "edge_index: expected node numbers in 0..2, got 0..5"),
        (torch.tensor([[0, -1], [1, 0]]), None, r"edge_index: expected node numbers in 0..2, got -1..1"),
        (torch.tensor([[0.0], [1.0]]), None, "edge_index: expected an integer tensor"),
        (torch.tensor([0, 1]), None, r"edge_index: expected shape \[2, \*\], got \[2\]"),
        (torch.tensor([[0, 1], [1, 0]]), torch.ones(3), r"edge_weight: expected shape \[2\], got \[3\]"),
        (torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, float("nan")]), "edge_weight: expected finite numbers"),
        (torch.tensor([[0, 1], [1, 0]]), 1j * torch.ones(2), "edge_weight: expected real numbers, got torch.complex64"),
        (torch.tensor([[0, 1], [1, 0]]), [1.0, 1.0], "edge_weight: expected a tensor, got list"),
    ],
)
def test_bad_input(edge_index, weight, message):
    with pytest.raises(ValueError, match=message):
        adjacency_matrix(edge_index, weight, 3)


def test_weights_added_in_another_order_are_not_directed():
    edge_index = torch.tensor([[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    weight = torch.tensor([0.1, 0.2, 0.3, 0.3, 0.2, 0.1], dtype=torch.float64)
    assert 0.1 + 0.2 + 0.3 != 0.3 + 0.2 + 0.1
    a = adjacency_matrix(edge_index, weight, 2, directed="reject").toarray()
    assert a[0, 1] == a[1, 0]


def test_directed_rejected_on_request():
    with pytest.raises(ValueError, match="edge_index: expected an undirected graph"):
        adjacency_matrix(torch.tensor([[0], [1]]), None, 2, directed="reject")


def test_a_light_directed_edge_beside_a_heavy_one_is_rejected_too():
    ends, weight = torch.tensor([[0, 1, 1], [1, 0, 2]]), torch.tensor([1e9, 1e9, 1e-6], dtype=torch.float64)
    with pytest.raises(ValueError, match=r"edge_index: .* got 1 asymmetric edges"):
        adjacency_matrix(ends, weight, 3, directed="reject")
    with pytest.raises(ValueError, match=r"edge_index of graph 7: .* got 1 asymmetric edges"):
        adjacency_matrix(torch.cat([ends, ends[:, :2] + 3], 1), torch.cat([weight, weight[:2]]), 6, "reject", GRAPHS)
    with pytest.raises(ValueError, match=r"edge_index of graph 9: .* got 1 asymmetric edges"):
        adjacency_matrix(ends + 3, weight, 6, "reject", GRAPHS)


@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
def test_negative_weights_rejected_where_they_cannot_be(operator):
    data = complete(3)
    a = adjacency_matrix(data.edge_index, -torch.ones(6), 3)
    with pytest.raises(ValueError, match="edge_weight: expected weights of at least 0"):
        build_operator(a, operator)
    several = adjacency_matrix(data.edge_index + 3, torch.tensor([1.0, 1, 1, -2, 1, 1]), 6, graph=GRAPHS)
    with pytest.raises(
        ValueError, match=f"edge_weight of graph 9: expected weights of at least 0 for operator '{operator}', got -0.5"
    ):
        build_operator(several, operator, GRAPHS)
    assert build_operator(a, "adjacency").toarray()[0, 1] == -1
