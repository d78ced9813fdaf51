from dataclasses import fields, replace

import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from gssc.datasets import GraphDataset, flatten
from gssc.datasets.flat import collect, concatenate, from_about, pack_columns, select, without_isolated
from gssc.datasets.own import load_saved
from gssc.tasks import Task

TASK = Task("node", "regression", 1, "mae")


def graphs(count=5):
    made = []
    for n in range(2, 2 + count):
        edge_index = torch.randint(n, (2, 3 * n))
        made.append(Data(x=torch.randn(n, 2), edge_index=edge_index, edge_attr=torch.randn(3 * n, 1), y=torch.randn(n)))
    return made


def assert_same(a, b):
    for field in fields(a):
        u, v = getattr(a, field.name), getattr(b, field.name)
        assert (u is None and v is None) or torch.equal(u, v), field.name


def test_order_by_destination_keeps_parallel_edges_and_happens_once():
    data = graphs(3)
    flat = flatten(data, TASK)
    ordered = flat.sorted_by_destination()
    for g, graph in enumerate(data):
        own = slice(int(flat.edge_ptr[g]), int(flat.edge_ptr[g + 1]))
        expected = sorted(
            range(graph.num_edges), key=lambda e: (int(graph.edge_index[1, e]), int(graph.edge_index[0, e]))
        )
        assert torch.equal(ordered.edge_index[:, own], graph.edge_index[:, expected])
        assert torch.equal(ordered.edge_attr[own], graph.edge_attr[expected])
    assert ordered.sorted_by_destination() is ordered


def test_parts_selections_and_concatenation_agree_with_lists():
    data = graphs()
    flat = replace(flatten(data, TASK), mask=torch.rand(20) < 0.5)
    first, second = flat.part(0, 2, "node"), flat.part(2, 5, "node")
    assert_same(replace(second, mask=None), flatten(data[2:], TASK))
    assert_same(concatenate([first, second]), flat)
    chosen = replace(select(flat, torch.tensor([3, 0]), "node"), mask=None)
    assert_same(chosen, flatten([data[3], data[0]], TASK))
    with pytest.raises(ValueError, match=r"mask: expected given in every part or in none, got 1 of 2"):
        concatenate([first, replace(second, mask=None)])


def test_about_comes_back():
    task = Task("graph", "regression", 2, "rmse", shift=(1.0, 2.0), scale=(3.0, 4.0))
    dataset = GraphDataset("mine", task, (3, 4), 2, {}, {"edge_attr": ([1.0], [2.0])})
    assert from_about(dataset.about()) == dataset


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(("numbers", "dtype"), [([1, 0, 2], torch.long), ([0.5, 1, 2.0], torch.float32)])
def test_targets_may_be_plain_numbers(numbers, dtype, saved, tmp_path):
    data = graphs(3)
    for graph, number in zip(data, numbers, strict=True):
        graph.y = number
    if saved:
        InMemoryDataset.save(data, tmp_path / "mine.pt")
    y, _ = collect(load_saved(tmp_path / "mine.pt") if saved else data, "y")
    assert (y.dtype, y.tolist()) == (dtype, numbers)


@pytest.mark.parametrize(
    ("name", "value", "expected", "got"),
    [
        ("x", torch.zeros(4, 3), r"float32 of shape \[\*, 2\]", r"float32 of shape \[4, 3\]"),
        ("x", torch.zeros(4), r"float32 of shape \[\*, 2\]", r"float32 of shape \[4\]"),
        ("edge_attr", torch.zeros(12, 2), r"float32 of shape \[\*, 1\]", r"float32 of shape \[12, 2\]"),
        ("y", torch.zeros(1, 2), r"float32 of shape \[\*\]", r"float32 of shape \[1, 2\]"),
        ("y", torch.zeros(4).to(torch.float8_e4m3fn), r"float32 of .*", r"float8_e4m3fn of shape \[4\]"),
    ],
)
def test_the_first_graph_that_differs_is_named(name, value, expected, got):
    data = graphs()
    data[2][name] = value
    match = rf"\A{name} of graph 2: expected {expected}, as in the graphs before it, got {got}\Z"
    with pytest.raises(ValueError, match=match):
        flatten(data, TASK)


@pytest.mark.parametrize("collated", [False, True])
@pytest.mark.parametrize("name", ["x", "edge_attr", "y"])
def test_rows_must_fit_graph_by_graph(name, collated, tmp_path):
    """Two graphs whose rows are exchanged have as many together as they should."""
    data = graphs(3)
    for graph in data:
        graph.num_nodes = graph.x.shape[0]
    data[1][name], data[2][name] = data[2][name], data[1][name]
    if collated:
        InMemoryDataset.save(data, tmp_path / "mine.pt")
    with pytest.raises(ValueError, match=rf"\A{name} of graph 1: expected \d+ rows, got \d+\Z"):
        pack_columns(load_saved(tmp_path / "mine.pt") if collated else data)


def test_graphs_without_edges_need_no_width():
    data = graphs(3)
    data[1].edge_index, data[1].edge_attr = torch.zeros(2, 0, dtype=torch.long), torch.zeros(0)
    assert flatten(data, TASK).edge_attr.shape == (18, 1)


def test_attributes_of_other_kinds_are_named(tmp_path):
    data = graphs(3)
    for graph in data:
        graph.y = [0.5, 1.5]
    InMemoryDataset.save(data, tmp_path / "mine.pt")
    for content, name in ((data, "y of graph 0"), (load_saved(tmp_path / "mine.pt"), "y")):
        with pytest.raises(ValueError, match=rf"\A{name}: expected a tensor or a number, got list"):
            collect(content, "y")


def test_nodes_without_edges_are_dropped_and_the_others_renumbered():
    loop = torch.tensor([[3, 1, 5, 2], [1, 4, 5, 1]])  # 0 has no edge, 5 one to itself
    parts = ((loop, 7), (loop[:, :0], 2), (loop[:, :2], 5))
    flat, _ = pack_columns([Data(x=torch.arange(n), edge_index=edges) for edges, n in parts])
    kept = without_isolated(flat)
    assert kept.ptr.tolist() == [0, 5, 5, 8]
    assert kept.x.view(-1).tolist() == [1, 2, 3, 4, 5, 1, 3, 4]
    assert kept.edge_index.tolist() == [[2, 0, 4, 1, 1, 0], [0, 3, 4, 0, 0, 2]]
    assert torch.equal(kept.edge_ptr, flat.edge_ptr)
