import copy

import pytest
import torch
from graphs import random_graph
from torch_geometric.nn import GINEConv

from gssc import GINE
from gssc.nn import gine
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
def test_fused_is_the_same_module(monkeypatch, with_edges):
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    conv, data = GINE(5).to(device), random_graph(6)
    x = torch.randn(6, 5, device=device, requires_grad=True)
    e = torch.randn(data.num_edges, 5, device=device) if with_edges else None
    results = []
    for on in (True, False):
        monkeypatch.setattr(gine, "can_fuse", lambda *tensors, on=on: on)
        out = conv(x, data.edge_index.to(device), e)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *conv.parameters()])])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-5)
