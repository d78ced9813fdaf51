"""The attack on numbers and symmetries: a short form of it, and that it would notice."""

import pytest
import torch
from torch_geometric.utils import is_undirected

from gssc import GSSC
from tools import attack_device
from tools.attack_device import LIMITS, Errors, attack, ugly_graphs

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def test_short_form():
    errors = attack(DEVICE, 30, batch_size=15, progress=False)
    assert not +errors.above, errors.table()
    assert errors.count.keys() == LIMITS.keys()
    assert all(errors.largest[kind] > 0 for kind in LIMITS if kind not in ("computed twice", "signs flipped"))


def test_graphs_are_ugly():
    source = ugly_graphs(torch.Generator().manual_seed(0))
    graphs = [next(source) for _ in range(200)]
    assert any(graph.num_nodes == 0 for graph in graphs)
    assert any(graph.num_nodes > 2 and graph.num_edges == 0 for graph in graphs)
    assert any(graph.has_self_loops() for graph in graphs)
    assert all(is_undirected(graph.edge_index, graph.edge_weight) for graph in graphs if not graph.has_self_loops())
    assert any((graph.edge_weight != 2).any() for graph in graphs)


def test_notices_a_model_that_hears_node_numbers(monkeypatch):
    forward = GSSC.forward

    def numbered(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        return out + torch.arange(len(out), device=out.device)[:, None] / 10 if self.level == "node" else out

    monkeypatch.setattr(GSSC, "forward", numbered)
    monkeypatch.setattr(attack_device, "MODELS", attack_device.MODELS[:1])
    errors = attack(DEVICE, 6, batch_size=6, progress=False)
    assert +errors.above == {"nodes permuted": 1, "other graphs in the batch": 1}


@pytest.mark.parametrize("wrong", [2e-3, float("nan")])
def test_notices_numbers(wrong):
    errors = Errors()
    errors.compare("output, float32", torch.full((3,), wrong), torch.zeros(3))
    errors.compare("output, float32", torch.zeros(0), torch.zeros(0))
    assert errors.above["output, float32"] == 1
    assert "1" in errors.table()
