import copy

import pytest
import torch
from graphs import random_graph
from torch_geometric.nn import GINEConv

from gssc import ops
from gssc.nn import GINE
from gssc.ops import gine as gine_op
from gssc.ops.context import graph_context
from gssc.testing import assert_close


def test_is_pygs_gine(float64):
    conv, data, x = GINE(3), random_graph(6), torch.randn(6, 3)
    e = torch.randn(data.num_edges, 3)
    theirs = GINEConv(copy.deepcopy(conv.nn))
    theirs.load_state_dict(conv.state_dict())
    assert_close(conv(x, data.edge_index, e), theirs(x, data.edge_index, e))


def test_no_edge_features_count_as_zero(float64):
    conv, data, x = GINE(3), random_graph(6), torch.randn(6, 3)
    assert_close(conv(x, data.edge_index), conv(x, data.edge_index, torch.zeros(data.num_edges, 3)))


@pytest.mark.parametrize("with_edges", [True, False])
def test_fused_is_the_same_module(pretend_gpu, with_edges):
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    conv, data = GINE(5).to(device), random_graph(6)
    x = torch.randn(6, 5, device=device, requires_grad=True)
    e = torch.randn(data.num_edges, 5, device=device) if with_edges else None
    results = []
    for on in (True, False):
        pretend_gpu(on, gine_op)
        out = conv(x, data.edge_index.to(device), e)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-5)


@pytest.mark.parametrize("with_edges", [True, False])
def test_a_shared_context_and_a_learned_epsilon_change_nothing(float64, with_edges):
    conv, data = GINE(5), random_graph(6)
    conv.eps = torch.nn.Parameter(torch.tensor([0.3]))
    x = torch.randn(6, 5, requires_grad=True)
    e = torch.randn(data.num_edges, 5, requires_grad=True) if with_edges else None
    leaves = [x, *([e] if with_edges else []), *conv.parameters()]
    context = graph_context(6, edge_index=data.edge_index)
    outputs = (
        conv(x, data.edge_index, e, context=context),
        conv.nn(ops.gine_messages(x, e, data.edge_index, backend="naive", eps=conv.eps)),
    )
    results = [[out, *torch.autograd.grad(out.square().sum(), leaves)] for out in outputs]
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)


def test_edges_of_a_wrong_shape_are_refused():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=r"edge_attr: expected shape \[2, 4\], got \[1, 4\]"):
        GINE(4)(torch.randn(2, 4), edge_index, torch.randn(1, 4))
    with pytest.raises(ValueError, match=r"x: expected shape \[\*, 4\], got \[2, 3\]"):
        GINE(4)(torch.randn(2, 3), edge_index)


def test_another_network_is_called():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    conv = GINE(4)
    conv.nn[0] = torch.nn.utils.parametrizations.spectral_norm(conv.nn[0])
    conv.eval()
    x, e = torch.randn(2, 4), torch.randn(2, 4)
    messages = ops.gine_messages(x, e, edge_index, backend="naive", eps=conv.eps)
    torch.testing.assert_close(conv(x, edge_index, e), conv.nn(messages))
