"""The assertions shipped to users must fail where a symmetry is broken."""

import pytest
import torch
from graphs import cycle, path, random_graph

from gssc import LaplacianSpectrum, testing


def with_spectrum(data):
    data.x = torch.arange(data.num_nodes * 2.0).view(-1, 2)
    return LaplacianSpectrum(k=4)(data)


def test_permutation():
    data = with_spectrum(random_graph(8))
    testing.assert_permutation_equivariant(lambda d: d.x.sum(0), data, level="graph")
    testing.assert_permutation_equivariant(lambda d: d.x * 2, data)
    with pytest.raises(AssertionError, match="permutation of nodes: differs by"):
        testing.assert_permutation_equivariant(lambda d: d.x.cumsum(0), data)


def test_edges_are_permuted_with_their_features():
    data = path(4)
    data.edge_attr = torch.arange(6.0)
    data.x = torch.zeros(4, 1)
    out = testing.permute_nodes(data, torch.tensor([3, 1, 0, 2]))

    def weights(graph, names):
        pairs = graph.edge_index.T.tolist()
        return {(names[u], names[v]): w for (u, v), w in zip(pairs, graph.edge_attr.tolist(), strict=True)}

    assert weights(out, [0, 1, 2, 3]) == weights(data, [3, 1, 0, 2])


def test_signs_and_bases():
    data = with_spectrum(cycle(6))
    data.eigvecs = data.eigvecs.double()
    testing.assert_sign_invariant(lambda d: d.eigvecs.square(), data)
    testing.assert_basis_invariant(lambda d: d.eigvecs @ d.eigvecs.T, data)
    with pytest.raises(AssertionError, match="sign flips"):
        testing.assert_sign_invariant(lambda d: d.eigvecs, data)
    with pytest.raises(AssertionError, match="rotations inside eigenspaces"):
        testing.assert_basis_invariant(lambda d: d.eigvecs.square(), data)


def test_batches():
    graphs = [with_spectrum(path(3)), with_spectrum(path(5))]
    testing.assert_batch_independent(lambda d: d.x, graphs)
    testing.assert_no_gradient_across_graphs(lambda d: d.x * 3, graphs)
    with pytest.raises(AssertionError, match="in a batch"):
        testing.assert_batch_independent(lambda d: d.x - d.x.mean(0), graphs)
    with pytest.raises(AssertionError, match="graph 0: its output has a gradient"):
        testing.assert_no_gradient_across_graphs(lambda d: d.x - d.x.mean(0), graphs)


def test_reference():
    inputs = {"a": torch.randn(3), "b": torch.randn(3)}
    testing.assert_matches_reference(lambda a, b: a * b, lambda a, b: b * a, inputs)
    with pytest.raises(AssertionError, match="gradient of b"):
        testing.assert_matches_reference(lambda a, b: a * b.detach(), lambda a, b: a * b, inputs)
    with pytest.raises(AssertionError, match="output: differs by nan"):
        testing.assert_matches_reference(lambda a, b: a * float("nan"), lambda a, b: a * b, inputs)
    with pytest.raises(AssertionError, match=r"output: shape \[3\] instead of \[\]"):
        testing.assert_matches_reference(lambda a, b: a * b, lambda a, b: (a * b).sum(), inputs)
