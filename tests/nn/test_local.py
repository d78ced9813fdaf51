import pytest
import torch
from graphs import edgeless, random_graph
from torch_geometric.nn import SAGEConv, TransformerConv

from gssc import GSSCLayer
from gssc.nn import GatedGCN
from gssc.nn.local import LOCALS, make_locals
from gssc.testing import assert_close

C = 4


def make_local(local, channels, *settings):
    (module,) = make_locals(local, 1, channels, *settings)
    return module


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
        # GIN, GCN and SAGE have no place for edge features; all others read them.
        assert (e.grad is None or not e.grad.any()) == (name in ("gin", "gcn", "sage"))
    permutation = torch.randperm(graph.num_nodes)
    moved = torch.empty_like(x).index_copy(0, permutation, x)
    again, _ = layer.eval()(moved, permutation[edge_index], edge_attr=e)
    assert_close(again[permutation], layer(x, edge_index, edge_attr=e)[0])


def all_locals(*arguments):
    return list(make_locals(*arguments))


def test_none_and_wrong_names():
    assert make_local("none", C) is None
    with pytest.raises(ValueError, match=r"local: expected one of .*, got 'pnna' \(did you mean 'pna'\?\)"):
        make_local("pnna", C)
    with pytest.raises(
        ValueError, match="degree_histogram: expected that of the training set, for local='pna', got None"
    ):
        make_local("pna", C)


def test_one_for_every_layer():
    assert list(make_locals("none", 3, C)) == [None] * 3
    parts = all_locals("gatedgcn", 2, C, 0.1, "layer")
    assert [type(part) for part in parts] == [GatedGCN] * 2
    assert parts[0] is not parts[1]
    assert parts[1].dropout == 0.1


def test_a_module_serves_the_first_layer_and_fresh_copies_the_others():
    conv = SAGEConv(C, C)
    parts = all_locals(conv, 3, C)
    assert parts[0] is conv
    assert make_local(conv, C) is conv
    weights = [part.lin_l.weight for part in parts]
    for number, weight in enumerate(weights):
        assert not any(torch.equal(weight, other) for other in weights[:number])
    bare = torch.nn.Sequential(torch.nn.Linear(C, C))  # has no reset_parameters
    copy = all_locals(bare, 2, C)[1]
    assert copy is not bare
    assert torch.equal(copy[0].weight, bare[0].weight)


def test_a_function_makes_one_for_every_layer():
    parts = all_locals(lambda channels: TransformerConv(channels, channels), 2, C)
    assert [type(part) for part in parts] == [TransformerConv] * 2
    assert parts[0].in_channels == C
    with pytest.raises(ValueError, match="local: expected a function that returns a module, got int"):
        all_locals(lambda channels: channels, 2, C)
    with pytest.raises(ValueError, match="local: expected a name, a module or a function"):
        make_local(3, C)
