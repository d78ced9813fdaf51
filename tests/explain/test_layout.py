import numpy as np
import pytest
import torch
from explain_cases import ONE_NODE, TWO_PARTS
from graphs import cycle, edgeless, path
from torch_geometric.data import Data

from gssc import LaplacianSpectrum
from gssc.explain import hops_to
from gssc.explain import layout as module
from gssc.explain.layout import layout


@pytest.mark.parametrize("graph", [edgeless(1), edgeless(3), path(2), cycle(9), TWO_PARTS], ids=str)
def test_positions_are_distinct_inside_and_the_same_again(graph):
    found = layout(graph)
    assert found.shape == (graph.num_nodes, 2)
    assert np.abs(found).max(initial=0.0) <= 1.0 + 1e-12
    assert len(np.unique(found.round(6), axis=0)) == graph.num_nodes
    assert np.array_equal(found, layout(graph))


def test_positions_of_the_data_come_first():
    """Row and column of a picture: row 0 is on top."""
    graph = path(3)
    graph.pos = torch.tensor([[0.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
    assert layout(graph).tolist() == [[-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]]


def test_larger_graphs_have_cheaper_layouts(monkeypatch):
    graph = LaplacianSpectrum(k=4)(cycle(12))
    monkeypatch.setattr(module, "SPRINGS", 5)
    springs = layout(graph)
    assert len(np.unique(springs.round(6), axis=0)) == 12
    assert np.array_equal(springs, layout(graph))
    monkeypatch.setattr(module, "SPECTRAL", 5)
    assert len(np.unique(layout(graph).round(4), axis=0)) == 12
    assert np.array_equal(layout(path(12)), np.zeros((12, 2)))  # nothing is known


def test_along_a_path_and_between_components():
    assert hops_to(path(5), [0, 3]).tolist() == [[0, 1, 2, 3, 4], [3, 2, 1, 0, 1]]
    hops = hops_to(TWO_PARTS, [0])[0]
    assert hops[:4].tolist() == [0, 1, 2, 3]
    assert np.isinf(hops[4:]).all()
    assert hops_to(ONE_NODE, [0]).tolist() == [[0]]
    assert hops_to(path(3), []).shape == (0, 3)


def test_edges_are_followed_as_messages_are():
    """0 → 1 → 2, and 1 → 2 twice: what node 0 says reaches node 2, not the other way round."""
    data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 2, 2]]), num_nodes=3)
    assert hops_to(data, [2]).tolist() == [[2, 1, 0]]
    assert hops_to(data, [0]).tolist() == [[0, np.inf, np.inf]]
    assert hops_to(Data(num_nodes=2), [1]).tolist() == [[np.inf, 0]]
