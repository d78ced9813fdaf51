"""Datasets as flat tensors, from collated storage or from the graphs themselves."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

from gssc.spectra.operators import adjacency_matrix
from gssc.spectra.packed import PackedGraphs, pack

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def graphs(weighted: bool = False, features: bool = True) -> list[Data]:
    out = [
        Data(edge_index=PATH, num_nodes=3, edge_weight=torch.tensor([1.0, 1.0, 2.0, 2.0])),
        Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=2, edge_weight=torch.empty(0)),
        Data(edge_index=PATH[:, :2], num_nodes=4, edge_weight=torch.tensor([0.5, 0.5])),
    ]
    for graph in out:
        if not weighted:
            del graph.edge_weight
        if features:
            graph.x = torch.zeros(graph.num_nodes, 2)
            del graph.num_nodes
    return out


def in_memory(data: list[Data]) -> InMemoryDataset:
    dataset = InMemoryDataset()
    dataset._data, dataset.slices = dataset.collate(data)
    return dataset


def same(a: PackedGraphs, b: PackedGraphs) -> bool:
    weights = (a.weight is None and b.weight is None) or torch.equal(a.weight, b.weight)
    return weights and all(torch.equal(getattr(a, n), getattr(b, n)) for n in ("edge_index", "ptr", "edge_ptr"))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("features", [False, True])
def test_collated_storage_reads_like_the_list(weighted: bool, features: bool) -> None:
    data = graphs(weighted, features)
    listed = pack(data)
    assert listed.ptr.tolist() == [0, 3, 5, 9]
    assert listed.edge_ptr.tolist() == [0, 4, 4, 6]
    assert (listed.weight is None) is not weighted
    assert same(pack(in_memory(data)), listed)
    # A subset has no storage of its own.
    assert same(pack(in_memory(data)[[2, 0]]), pack([data[2], data[0]]))
    assert same(pack(in_memory(data[:1])), pack(data[:1]))


def test_storage_is_read_without_touching_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = in_memory(graphs())
    monkeypatch.setattr(InMemoryDataset, "get", lambda *_: pytest.fail("a graph was read"))
    assert pack(dataset).num_graphs == 3


def test_weights_where_present_else_one() -> None:
    mixed = [graphs(weighted=True)[0], graphs()[2]]
    assert pack(mixed).weight.tolist() == [1, 1, 2, 2, 1, 1]
    assert pack(mixed, weight_attr=None).weight is None
    column = graphs(weighted=True)[0]
    column.edge_weight = column.edge_weight.unsqueeze(1)
    assert pack([column]).weight.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("weighted", [False, True])
def test_one_matrix_holds_the_graphs_asked_for_filled_up(weighted: bool) -> None:
    data = graphs(weighted)
    data[2].edge_index = data[2].edge_index[:, :1]  # one way only
    if weighted:
        data[2].edge_weight = data[2].edge_weight[:1]
    together = pack(data).adjacency(torch.tensor([2, 0]), 5, "symmetrize").toarray()
    want = np.zeros((10, 10))
    for begin, graph in ((0, data[2]), (5, data[0])):
        alone = adjacency_matrix(graph.edge_index, graph.get("edge_weight"), graph.num_nodes).toarray()
        want[begin : begin + len(alone), begin : begin + len(alone)] = alone
    np.testing.assert_array_equal(together, want)


def test_no_edge_index_and_no_graphs() -> None:
    assert pack([Data(x=torch.zeros(2, 1))]).edge_ptr.tolist() == [0, 0]
    assert pack([]).num_graphs == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([Data(edge_index=PATH, num_nodes=3), Data(edge_index=PATH, num_nodes=2)], r"edge_index of graph 1: .* 0\.\.1"),
        ([Data(edge_index=PATH - 1, num_nodes=3)], "edge_index of graph 0"),
        ([Data(edge_index=PATH.float(), num_nodes=3)], "edge_index: expected an integer tensor"),
        ([Data(edge_index=PATH, num_nodes=3, edge_weight=torch.full((4,), torch.nan))], "edge_weight: .* 4 non-finite"),
        (
            [Data(edge_index=PATH, num_nodes=3, edge_weight=torch.ones(3))],
            r"edge_weight of dataset\[0\]: expected shape \[4\], got \[3\]",
        ),
        (
            [Data(edge_index=PATH, num_nodes=3, edge_weight=torch.ones(2, 2))],
            r"edge_weight of dataset\[0\]: expected shape \[4\], got \[2, 2\]",
        ),
        (
            [Data(edge_index=PATH, num_nodes=3, edge_weight=1.0)],
            r"edge_weight of dataset\[0\]: expected a tensor, got",
        ),
        ([Data(edge_index=PATH, num_nodes=3, edge_weight=torch.ones(4) * 1j)], r"dataset\[0\]: expected real numbers"),
        ([Data(edge_index=PATH[0], num_nodes=3)], r"edge_index of dataset\[0\]: expected shape \[2, \*\], got \[4\]"),
        ([Data(edge_index=PATH.T, num_nodes=3)], r"edge_index of dataset\[0\]: expected shape \[2, \*\], got \[4, 2\]"),
        ([HeteroData()], r"dataset\[0\]: expected a torch_geometric.data.Data, got HeteroData"),
    ],
)
def test_bad_input_is_named(data: list[Data], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pack(data)
