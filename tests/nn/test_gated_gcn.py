import pytest
import torch
from graphs import edgeless, random_graph

from gssc import GatedGCN
from gssc.testing import assert_close


def test_formula_edge_by_edge(float64):
    conv = GatedGCN(3, norm="none").eval()
    data = random_graph(6)
    x, e = torch.randn(6, 3), torch.randn(data.num_edges, 3)
    nodes, edges = conv(x, data.edge_index, e)
    new_edges = torch.zeros_like(e)
    for i in range(6):
        total, weight = torch.zeros(3), torch.full((3,), conv.eps)
        for number, (source, target) in enumerate(data.edge_index.T.tolist()):
            if target == i:
                logit = conv.lin_edge(e[number]) + conv.lin_target(x[i]) + conv.lin_source(x[source])
                new_edges[number] = e[number] + logit.relu()
                total += logit.sigmoid() * conv.lin_neighbor(x[source])
                weight += logit.sigmoid()
        assert_close(nodes[i], x[i] + (conv.lin_self(x[i]) + total / weight).relu())
    assert_close(edges, new_edges)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_trains_without_edges_and_with_one_node(norm):
    conv = GatedGCN(4, dropout=0.1, norm=norm)
    for nodes in (1, 3):
        x, e = conv(torch.randn(nodes, 4), edgeless(nodes).edge_index, torch.zeros(0, 4))
        assert torch.isfinite(x).all()
        assert e.shape == (0, 4)
    assert all(torch.isfinite(buffer).all() for buffer in conv.buffers())


def test_edge_features_are_optional(float64):
    conv = GatedGCN(3).eval()
    data = random_graph(6)
    x, e = conv(torch.randn(6, 3), data.edge_index)
    assert x.shape == (6, 3)
    assert e.shape == (data.num_edges, 3)


def test_without_residual(float64):
    conv = GatedGCN(3).eval()
    bare = GatedGCN(3, residual=False).eval()
    bare.load_state_dict(conv.state_dict())
    data, x = random_graph(6), torch.randn(6, 3)
    e = torch.randn(data.num_edges, 3)
    for full, part, start in zip(conv(x, data.edge_index, e), bare(x, data.edge_index, e), (x, e), strict=True):
        assert_close(full, start + part)


def test_bad_input():
    with pytest.raises(ValueError, match=r"edge_attr: expected shape \[2, 3\], got \[1, 3\]"):
        GatedGCN(3)(torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]]), torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"dropout: expected a probability in \[0, 1\), got 1.0"):
        GatedGCN(3, dropout=1.0)
