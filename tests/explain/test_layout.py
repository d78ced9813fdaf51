import numpy as np
import pytest
import torch
from explain_cases import TWO_PARTS
from graphs import cycle, edgeless, path

from gssc import LaplacianSpectrum
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
