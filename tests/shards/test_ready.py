"""What cannot be divided is refused in one line; and one process with one shard is the ordinary model."""

import pytest
import torch
from torch_geometric.nn import ChebConv, GATConv, GCNConv, SAGEConv, SGConv

from gssc import GSSC
from gssc.shards import Shard, cut_graph, make_ready
from gssc.shards.shard import NARROW


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"glob": "attention"}, "model.glob: expected GSSConv.*, got SoftmaxAttention"),
        ({"lappe_channels": 2}, "model: expected no .*LapPE.*, got EigenvectorEncoder"),
        ({"level": "graph", "pool": "max"}, "model.pool: expected 'sum' or 'mean'"),
        ({"level": "edge"}, "model: expected .* got EdgeHead"),
        ({"local": lambda c: GCNConv(c, c)}, r"model.local: .* got GCNConv"),
        ({"local": lambda c: SGConv(c, c, K=2)}, r"model.local: .* got SGConv"),
        ({"local": lambda c: ChebConv(c, c, K=3)}, r"model.local: .* got ChebConv"),
    ],
)
def test_what_cannot_be_divided_is_refused(options, said):
    model = GSSC(2, 8, 1, **{"level": "node", **options})
    with pytest.raises(ValueError, match=said):
        make_ready(model)


@pytest.mark.parametrize("local", ["gatedgcn", "gcn", "gat", lambda c: SAGEConv(c, c), lambda c: GATConv(c, c)])
def test_convolutions_of_neighbours_pass(local):
    make_ready(GSSC(2, 8, 1, level="node", local=local))


def test_one_shard_is_the_graph(float64):
    torch.manual_seed(0)
    edges, x = torch.randint(0, 9, (2, 20)), torch.randn(10, 3)
    model = GSSC(2, 8, 2, node_features=3, level="node", local="gcn", glob="none", smooth="ends")
    make_ready(model)
    (tensors,) = cut_graph(edges, torch.zeros(10, dtype=torch.long), 1, {"x": x}, {})
    torch.testing.assert_close(model(**Shard(tensors, 10).inputs), model(x, edges))


@pytest.mark.parametrize("local", NARROW)
def test_edges_in_int32_are_the_same(float64, local):
    torch.manual_seed(0)
    edges, x = torch.randint(0, 9, (2, 20)), torch.randn(10, 3)
    (tensors,) = cut_graph(edges, torch.zeros(10, dtype=torch.long), 1, {"x": x}, {})
    tensors |= {"eigvals": torch.rand(1, 4), "eigvecs": torch.randn(10, 4), "eigmask": torch.ones(1, 4).bool()}
    model = GSSC(2, 8, 2, node_features=3, level="node", local=local)
    make_ready(model)
    results = []
    for index in (torch.int64, torch.int32):
        inputs = Shard(tensors, 10, index=index).inputs
        assert inputs["edge_index"].dtype == index
        out = model.eval()(**inputs)
        results.append([out, *torch.autograd.grad(out.sum(), list(model.layers.parameters()), allow_unused=True)])
    for wide, narrow in zip(*results, strict=True):
        assert wide is None or torch.equal(wide, narrow)
