import pytest
import torch
from edge_batches import EDGES, make_edges
from torch_geometric.nn import GCNConv

from gssc.nn import LocalGCN
from gssc.ops import gine as gine_op
from gssc.testing import assert_close


@pytest.mark.parametrize("name", [name for name in EDGES if name != "no nodes"])
def test_is_pygs_gcn(float64, name):
    """Also with loops, several edges between two nodes, and nodes without edges."""
    nodes, pairs = EDGES[name]
    conv, theirs, edge_index = LocalGCN(3), GCNConv(3, 3), make_edges(pairs)
    theirs.load_state_dict(conv.state_dict())
    with torch.no_grad():
        conv.bias.normal_()
        theirs.bias.copy_(conv.bias)
    x = torch.randn(nodes, 3, requires_grad=True)
    results = []
    for module in (conv, theirs):
        out = module(x, edge_index)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *module.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)


def test_weighted_edges_are_pygs(float64):
    nodes, pairs = EDGES["random"]
    conv, theirs, edge_index = LocalGCN(3), GCNConv(3, 3), make_edges(pairs)
    theirs.load_state_dict(conv.state_dict())
    x, weight = torch.randn(nodes, 3), torch.rand(len(pairs))
    assert_close(conv(x, edge_index, weight), theirs(x, edge_index, weight))


def test_fused_is_the_same_module(pretend_gpu):
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    nodes, pairs = EDGES["random"]
    conv, edge_index = LocalGCN(5).to(device), make_edges(pairs).to(device)
    x = torch.randn(nodes, 5, device=device, requires_grad=True)
    results = []
    for on in (True, False):
        pretend_gpu(on, gine_op)
        out = conv(x, edge_index)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-5)


def test_bad_shapes():
    with pytest.raises(ValueError, match=r"x: expected shape \[\*, 4\], got \[2, 3\]"):
        LocalGCN(4)(torch.ones(2, 3), torch.zeros(2, 0, dtype=torch.long))


def test_double_precision_whatever_the_default():
    edge_index = make_edges(EDGES["random"][1])
    conv, x = LocalGCN(3).double(), torch.randn(EDGES["random"][0], 3, dtype=torch.float64)
    theirs = GCNConv(3, 3).double()
    theirs.load_state_dict(conv.state_dict())
    assert torch.get_default_dtype() == torch.float32
    assert_close(conv(x, edge_index), theirs(x, edge_index), tolerance=1e-14)
