"""Generated molecules: connected, undirected, of the size of ZINC's."""

import torch
from scipy.sparse.csgraph import connected_components
from torch_geometric.utils import contains_self_loops, is_undirected, to_scipy_sparse_matrix

from benchmarks.graphs import molecule_like


def test_connected_undirected_and_as_large_as_molecules():
    dataset = molecule_like(200, seed=3)
    sizes = torch.tensor([data.num_nodes for data in dataset])
    assert len(dataset) == 200
    assert 21 < sizes.float().mean() < 26
    for data in dataset:
        assert is_undirected(data.edge_index, num_nodes=data.num_nodes)
        assert not contains_self_loops(data.edge_index)
        assert connected_components(to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes))[0] == 1
    assert torch.equal(dataset._data.edge_index, molecule_like(200, seed=3)._data.edge_index)
    assert not torch.equal(dataset._data.edge_index, molecule_like(200, seed=4)._data.edge_index)
