import pytest
import torch
from graphs import edgeless, random_graph

from gssc import GSSCLayer
from gssc.nn.local import LOCALS, make_local
from gssc.testing import assert_close

C = 4


@pytest.mark.parametrize("graph", [random_graph(7, 0.4), edgeless(3), edgeless(1)], ids=["edges", "no edges", "node"])
@pytest.mark.parametrize("edge_features", [True, False], ids=["features", "bare"])
@pytest.mark.parametrize("name", [name for name in LOCALS if name != "none"])
def test_every_convolution_with_and_without_edges_and_their_features(float64, name, edge_features, graph):
    layer = GSSCLayer(C, make_local(name, C, 0.1, "batch", edge_features, [1, 2, 3]))
    x, edge_index = torch.randn(graph.num_nodes, C), graph.edge_index
    e = torch.randn(graph.num_edges, C, requires_grad=True) if edge_features else None
    out, _ = layer(x, edge_index, edge_attr=e)
    out.square().sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters() if p.grad is not None)
    if edge_features and graph.num_edges:
        # GIN and GCN have no place for edge features; all others read them.
        assert (e.grad is None or not e.grad.any()) == (name in ("gin", "gcn"))
    permutation = torch.randperm(graph.num_nodes)
    moved = torch.empty_like(x).index_copy(0, permutation, x)
    again, _ = layer.eval()(moved, permutation[edge_index], edge_attr=e)
    assert_close(again[permutation], layer(x, edge_index, edge_attr=e)[0])


def test_none_and_wrong_names():
    assert make_local("none", C) is None
    with pytest.raises(ValueError, match=r"local: expected one of .*, got 'pnna' \(did you mean 'pna'\?\)"):
        make_local("pnna", C)
    with pytest.raises(
        ValueError, match="degree_histogram: expected that of the training set, for local='pna', got None"
    ):
        make_local("pna", C)
