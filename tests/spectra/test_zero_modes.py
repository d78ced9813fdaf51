"""More components than places: one mode of λ = 0 stands for all, whatever the basis, and something is always kept."""

import numpy as np
import pytest
import torch
from graphs import complete, cycle, disjoint_union, edgeless, graphs, path, random_graph
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gssc import GSSCBlock, LaplacianSpectrum, prepare
from gssc.spectra.operators import build_operator
from gssc.testing import assert_basis_invariant, assert_close, assert_permutation_equivariant

LAPLACIANS = ["sym", "combinatorial"]
many = st.lists(graphs(max_nodes=5, weighted=False), min_size=1, max_size=6).map(disjoint_union)


@pytest.mark.usefixtures("float64")
@given(many, st.sampled_from(LAPLACIANS), st.integers(1, 6))
def test_something_is_kept_of_every_graph_in_whole_eigenspaces(data, operator, k):
    transform = LaplacianSpectrum(k, operator)
    out = transform(data)
    values, vectors = out.eigvals[out.eigmask].numpy(), out.eigvecs[:, out.eigmask[0]].numpy()
    matrix = build_operator(transform.adjacency(data), operator).toarray()
    every = np.linalg.eigvalsh(matrix)
    zeros = int((every < 1e-9).sum())
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(values.size), atol=1e-12)
    assert 1 <= values.size <= k
    expected = every if zeros <= k else every[zeros - 1 :]  # one mode for all where they do not fit
    np.testing.assert_allclose(values, expected[: values.size], atol=1e-12)
    cut = expected[values.size : values.size + 1]
    assert (cut > values[-1] + 1e-9).all()


@pytest.mark.usefixtures("float64")
@given(many, st.sampled_from(LAPLACIANS), st.integers(1, 6))
def test_it_depends_on_the_graph_alone(data, operator, k):
    generator = torch.Generator().manual_seed(data.num_nodes)
    data.x = torch.randn(data.num_nodes, 4, generator=generator)
    block = GSSCBlock(4).eval()

    def function(graph):
        return block(graph.x, graph.edge_index, spectrum=graph)

    transform = LaplacianSpectrum(k, operator)
    assert_permutation_equivariant(function, data, transform, tolerance=1e-9)
    assert_basis_invariant(function, transform(data), tolerance=1e-9)


def test_closed_forms(float64):
    triangles = disjoint_union([cycle(3)] * 5)
    out = LaplacianSpectrum(k=4, operator="combinatorial")(triangles)  # 0 five times, 3 ten times
    assert out.eigmask.tolist() == [[True, False, False, False]]
    assert_close(out.eigvecs[:, 0], torch.full((15,), 15**-0.5))
    mixed = disjoint_union([path(3), edgeless(1), edgeless(1)])
    out = LaplacianSpectrum(k=2)(mixed)
    # sqrt(degree) inside the path, by its three of five nodes.
    assert_close(out.eigvecs[:, 0], (torch.tensor([1, 2, 1, 4 / 3, 4 / 3]) / 4 * 3 / 5).sqrt())
    assert_close(out.eigvals, torch.tensor([[0.0, 1.0]]))
    complete_graph = LaplacianSpectrum(k=4)(complete(9))
    assert complete_graph.eigmask.sum() == 1


def test_all_modes_are_kept_where_they_fit():
    four = disjoint_union([cycle(3)] * 4)
    out = LaplacianSpectrum(k=4)(four)
    assert out.eigmask.all()
    assert out.eigvals.tolist() == [[0.0] * 4]


@pytest.mark.parametrize("operator", LAPLACIANS)
def test_a_dataset_and_its_graphs_are_treated_alike(float64, operator):
    dataset = [
        random_graph(8),
        disjoint_union([path(2)] * 6),
        edgeless(7),
        path(4),
        disjoint_union([cycle(5), path(3)] * 3),
    ]
    transform = LaplacianSpectrum(k=3, operator=operator)
    for graph, prepared in zip(dataset, prepare(dataset, transform, progress=False), strict=True):
        alone = transform(graph.clone())
        assert torch.equal(prepared.eigmask, alone.eigmask)
        assert_close(prepared.eigvals, alone.eigvals)
        gains = torch.cos(alone.eigvals) * alone.eigmask
        assert_close((prepared.eigvecs * gains) @ prepared.eigvecs.T, (alone.eigvecs * gains) @ alone.eigvecs.T)


def test_weakly_joined_clusters_are_zero_modes_too(float64):
    edges = disjoint_union([complete(4)] * 5).edge_index
    bridges = torch.tensor([[4 * i, 4 * i + 4] for i in range(4)]).T
    weights = torch.cat([torch.ones(edges.shape[1]), torch.full((8,), 1e-17)])
    data = Data(edge_index=torch.cat([edges, bridges, bridges.flip(0)], 1), edge_weight=weights, num_nodes=20)
    out = LaplacianSpectrum(k=3)(data)
    assert out.eigmask[0, 0]
    assert_close(out.eigvecs[:, 0], torch.full((20,), 20**-0.5))


def test_the_certificate_speaks_of_all_that_is_kept():
    transform = LaplacianSpectrum(k=6)
    spectrum = transform.spectrum(disjoint_union([path(n) for n in range(2, 12)]))
    assert spectrum.certificate.level == "proved"
    assert spectrum.certificate.orthogonality < 1e-12
    assert spectrum.available == sum(range(2, 12))
