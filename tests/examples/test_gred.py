"""GRED is what its paper says, node by node and step by step, and trains by its main."""

import sys
from pathlib import Path

import networkx as nx
import pytest
import torch
from graphs import edgeless, path, random_graph
from small_run import write_cycles
from torch_geometric.data import Batch
from torch_geometric.utils import to_networkx

from gssc import graph_context
from gssc.testing import assert_close, assert_permutation_equivariant

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from gred import GRED, main

C, HOPS = 6, 3
pytestmark = pytest.mark.usefixtures("float64")


def call(part, data):
    context = graph_context(data.num_nodes, data.num_graphs, data.batch, data.edge_index)
    return part(data.x, None, None, data.batch, context=context)


def formula(part, data):
    whole, rows = to_networkx(data, to_undirected=True), []
    decay = torch.exp(torch.complex(-part.nu.exp(), part.theta))
    w_in = torch.complex(*part.lin_in.weight.chunk(2))
    w_out = torch.complex(*((1, -1)[i] * half for i, half in enumerate(part.lin_out.weight.chunk(2, dim=1))))
    for node in range(data.num_nodes):
        distances = nx.single_source_shortest_path_length(whole, node)
        state = torch.zeros(C, dtype=torch.complex128)
        for k in range(HOPS, -1, -1):  # from afar
            inner = [part.inner(data.x[u]) for u, distance in distances.items() if distance == k]
            sums = part.outer(torch.stack(inner).sum(0) if inner else torch.zeros(C))
            state = decay * state + part.gamma.exp() * (w_in @ sums.to(state.dtype))
        rows.append(part.last((w_out @ state).real))
    return torch.stack(rows)


def test_it_is_what_its_paper_says_and_graphs_stand_alone():
    part, parts = GRED(C, HOPS), [random_graph(8), edgeless(1), path(7)]
    for data in parts:
        data.x = torch.randn(data.num_nodes, C)
    batch = Batch.from_data_list(parts)
    found, expected = call(part, batch), torch.cat([formula(part, data) for data in parts])
    assert_close(found, expected)
    gradients = [torch.autograd.grad(out.square().sum(), list(part.parameters())) for out in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs, tolerance=1e-8)
    assert_permutation_equivariant(lambda data: call(part, Batch.from_data_list([data])), parts[0])


def test_the_recurrence_decays():
    part = GRED(100, HOPS)
    size = torch.exp(-part.nu.exp()).detach()
    assert float(size.max()) < 1
    assert_close(part.gamma.detach().exp().square() + size.square(), torch.ones(100))


def test_main_trains_as_the_recipe_says(tmp_path):
    write_cycles(tmp_path)
    words = ["--recipe", "cycles-3", "--data-root", str(tmp_path), "--channels", "16", "--layers", "2"]
    errors = [main([*words, "--epochs", epochs, "--device", "cpu"]) for epochs in ("1", "20")]
    assert errors[1] < errors[0]
