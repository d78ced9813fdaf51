"""A sample that is the whole graph, with its own states, is the whole graph; a smaller one keeps to its fanout."""

import importlib.util
from pathlib import Path

import pytest
import torch

from benchmarks.roads import roads
from gssc import GSSC, LaplacianSpectrum, model_inputs
from gssc.testing import assert_close

PATH = Path(__file__).parents[2] / "examples" / "neighbor_sampling.py"


@pytest.fixture(scope="module")
def example():
    specification = importlib.util.spec_from_file_location("neighbor_sampling", PATH)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def case(**form):
    torch.manual_seed(0)
    data = roads(6, 6)
    data.edge_attr, data.x = None, data.x.double()
    data = LaplacianSpectrum(k=8)(data)
    data.eigvals, data.eigvecs = data.eigvals.double(), data.eigvecs.double()
    return GSSC(3, 8, 2, node_features=3, level="node", **form).double(), data


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("form", [{}, {"local": "gcn", "selective": True}], ids=str)
def test_all_nodes_and_their_states_are_the_whole_graph(example, form):
    model, data = case(**form)
    states = example.states_of(model, data)
    order = torch.randperm(data.num_nodes)
    nodes, edges = example.sample(order, data.edge_index, data.num_nodes, fanout=4, hops=1)
    assert torch.equal(nodes, order)
    assert edges.shape == data.edge_index.shape
    whole = model(**model_inputs(data))
    again = example.on_sample(model, data, nodes, edges, states, scale=1.0)
    assert_close(again, whole[order])
    expected = torch.autograd.grad(whole.square().sum(), list(model.parameters()), materialize_grads=True)
    found = torch.autograd.grad(again.square().sum(), list(model.parameters()), materialize_grads=True)
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs)


def test_without_a_gradient_of_the_state_only_what_makes_it_lacks_one(example):
    model, data = case()
    nodes, edges = example.sample(torch.arange(5), data.edge_index, data.num_nodes, fanout=2, hops=2)
    states = example.states_of(model, data)
    assert [state.shape for state in states] == [(1, 8, 8)] * 2
    out = example.on_sample(model, data, nodes, edges, states, scale=0.0)
    out.square().sum().backward()
    without = {name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    assert {f"layers.{layer}.glob.lin_o.weight" for layer in range(2)} <= without
    assert not any("local.lin_self" in name or "lin_q" in name for name in without)


def test_edges_of_a_sample_are_edges_of_the_graph(example):
    _, data = case()
    seeds = torch.tensor([7, 3])
    nodes, edges = example.sample(seeds, data.edge_index, data.num_nodes, fanout=2, hops=2)
    assert torch.equal(nodes[:2], seeds)
    assert len(nodes.unique()) == len(nodes)
    there = {tuple(edge) for edge in data.edge_index.T.tolist()}
    found = [tuple(edge) for edge in nodes[edges].T.tolist()]
    assert set(found) <= there
    assert len(set(found)) == len(found)
    assert torch.bincount(edges[1]).max() <= 2


def test_it_trains_all_three_ways(example, tmp_path, capsys):
    torch.save(roads(8, 8), tmp_path / "roads.pt")
    found = example.main([str(tmp_path / "roads.pt"), "--epochs", "2", "--batch", "10", "--k", "8", "--layers", "1"])
    assert list(found) == ["whole", "sample", "none"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(" 2 steps")
    assert int(lines[1].split()[-2]) > 2
