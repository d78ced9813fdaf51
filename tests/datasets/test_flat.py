from dataclasses import fields, replace

import pytest
import torch
from torch_geometric.data import Data

from gssc.datasets import GraphDataset, flatten
from gssc.datasets.flat import concatenate, from_about, select
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
