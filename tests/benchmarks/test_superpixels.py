"""Generated graphs like those of PascalVOC-SP."""

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

from benchmarks.graphs import LARGEST, NODES, SMALLEST, triangulated, voc_like


@pytest.mark.parametrize("nodes", [3, 4, 50])
def test_edges_are_the_sides_of_the_triangles(nodes):
    points = np.random.default_rng(nodes).random((nodes, 2))
    pairs = [(int(a), int(b)) for corners in Delaunay(points).simplices for a in corners for b in corners if a != b]
    assert list(map(tuple, triangulated(points).T.tolist())) == sorted(set(pairs))


def test_sizes_are_those_of_the_dataset():
    dataset = voc_like({"train": 40, "val": 3, "test": 2})
    assert {name: part.num_graphs for name, part in dataset.splits.items()} == {"train": 40, "val": 3, "test": 2}
    train = dataset.splits["train"]
    nodes, edges = train.ptr.diff(), train.edge_ptr.diff()
    assert SMALLEST <= int(nodes.min()) <= int(nodes.max()) <= LARGEST
    assert float(nodes.double().mean()) == pytest.approx(NODES, rel=0.03)
    assert float(edges.double().mean()) == pytest.approx(2_710, rel=0.06)
    again = voc_like({"train": 40, "val": 3, "test": 2}).splits["train"]
    assert torch.equal(again.edge_index, train.edge_index)
    assert torch.equal(again.x, train.x)
