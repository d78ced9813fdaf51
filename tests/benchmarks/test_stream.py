"""The graph that is written in pieces is what its description says, whatever its nodes are called."""

import numpy as np
import pytest
import torch

from benchmarks.stream import generate
from gssc.datasets import open_own


@pytest.mark.parametrize("ordered", [True, False])
def test_a_generated_graph_is_a_grid(tmp_path, ordered):
    side = 120  # more rows than are written at once
    edges = generate(tmp_path, side**2, ordered)
    dataset = open_own(tmp_path)
    graph = dataset.splits["train"]
    assert (graph.num_nodes, graph.num_edges) == (side**2, edges)
    assert 9.5 < edges / side**2 < 10
    source, target = graph.edge_index.long()
    assert torch.equal(*(keys.sort().values for keys in (source * side**2 + target, target * side**2 + source)))
    assert torch.unique(source * side**2 + target).numel() == edges
    if ordered:
        down, right = target // side - source // side, target % side - source % side
        assert set(zip(down.abs().tolist(), right.abs().tolist(), strict=True)) == {
            (0, 1),
            (0, 2),
            (1, 0),
            (1, 1),
            (2, 0),
        }
        noise, y = (np.load(tmp_path / f"{name}.npy").reshape(side, side) for name in ("x", "y"))
        assert y[50, 70] == (noise[48:53, 68:73].mean() > 0)
    # Half of the nodes are for training, and labels are even.
    assert 0.48 < float(graph.mask.double().mean()) < 0.52
    assert 0.4 < float(graph.y.double().mean()) < 0.6
