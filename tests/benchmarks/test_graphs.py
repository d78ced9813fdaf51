"""Generated graphs: of the size and shape that was asked for, the same for the same seed."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components
from scipy.spatial import Delaunay
from torch_geometric.utils import contains_self_loops, is_undirected, to_scipy_sparse_matrix

from benchmarks import graphs
from benchmarks.graphs import (
    LARGEST,
    NODES,
    SMALLEST,
    main,
    molecule_like,
    peptide_like,
    triangulated,
    voc_like,
    zinc_like,
)
from gssc.recipes import find_recipe
from gssc.train.open_data import open_for


def test_connected_undirected_and_as_large_as_molecules():
    dataset = molecule_like(200, seed=3)
    sizes = torch.tensor([data.num_nodes for data in dataset])
    assert len(dataset) == 200
    assert 21 < sizes.float().mean() < 26
    for data in dataset:
        assert is_undirected(data.edge_index, num_nodes=data.num_nodes)
        assert not contains_self_loops(data.edge_index)
        assert connected_components(to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes))[0] == 1
    assert torch.equal(dataset._data.edge_index, molecule_like(200, seed=3)._data.edge_index)
    assert not torch.equal(dataset._data.edge_index, molecule_like(200, seed=4)._data.edge_index)


def test_atoms_bonds_and_targets_of_zinc():
    flat = zinc_like(30)
    assert flat.num_graphs == 30
    assert 0 <= int(flat.x.min()) <= int(flat.x.max()) < 28
    assert 1 <= int(flat.edge_attr.min()) <= int(flat.edge_attr.max()) <= 3
    assert flat.y.shape == (30, 1)
    assert torch.equal(zinc_like(30).edge_index, flat.edge_index)


def test_graphs_like_those_of_pascal_voc():
    part = voc_like({"train": 6, "val": 1, "test": 1}).splits["train"]
    assert 395 <= part.num_nodes / 6 <= 500
    assert part.num_edges / 6 == pytest.approx(2710, rel=0.06)
    source, destination = part.edge_index[:, : int(part.edge_ptr[1])]
    assert not bool((source == destination).any())
    assert set(zip(source.tolist(), destination.tolist(), strict=True)) == set(
        zip(destination.tolist(), source.tolist(), strict=True)
    )


@pytest.mark.parametrize("nodes", [3, 4, 50])
def test_edges_are_the_sides_of_the_triangles(nodes):
    points = np.random.default_rng(nodes).random((nodes, 2))
    pairs = [(int(a), int(b)) for corners in Delaunay(points).simplices for a in corners for b in corners if a != b]
    assert list(map(tuple, triangulated(points).T.tolist())) == sorted(set(pairs))


def test_sizes_are_those_of_the_dataset():
    dataset = voc_like({"train": 40, "val": 3, "test": 2})
    assert {name: part.num_graphs for name, part in dataset.splits.items()} == {"train": 40, "val": 3, "test": 2}
    train = dataset.splits["train"]
    nodes, edges = train.ptr.diff(), train.edge_ptr.diff()
    assert SMALLEST <= int(nodes.min()) <= int(nodes.max()) <= LARGEST
    assert float(nodes.double().mean()) == pytest.approx(NODES, rel=0.03)
    assert float(edges.double().mean()) == pytest.approx(2_710, rel=0.06)
    again = voc_like({"train": 40, "val": 3, "test": 2}).splits["train"]
    assert torch.equal(again.edge_index, train.edge_index)
    assert torch.equal(again.x, train.x)


@pytest.mark.parametrize("name", ["geometric", "grid", "powerlaw", "random"])
def test_connected_simple_and_repeatable(name):
    make = getattr(graphs, name)
    adjacency = make(900, seed=1)
    assert 800 <= adjacency.shape[0] <= 900
    assert connected_components(adjacency)[0] == 1
    assert (adjacency != adjacency.T).nnz == 0
    assert not adjacency.diagonal().any()
    assert set(np.unique(adjacency.data)) == {1.0}
    assert (adjacency != make(900, seed=1)).nnz == 0


@pytest.mark.parametrize("name", ["peptides-func", "peptides-struct"])
def test_graphs_like_peptides(name):
    dataset = peptide_like(name, {"train": 200, "val": 2, "test": 2})
    train = dataset.splits["train"]
    assert train.num_nodes / 200 == pytest.approx(150.9, rel=0.1)
    assert train.num_edges / train.num_nodes == pytest.approx(307.3 / 150.9, rel=0.02)
    for rows, vocabulary in ((train.x, dataset.node_features), (train.edge_attr, dataset.edge_features)):
        assert rows.amax(0).tolist() == [size - 1 for size in vocabulary]
    assert train.y.shape == (200, dataset.task.outputs)
    assert (set(train.y.unique().tolist()) == {0.0, 1.0}) == (name == "peptides-func")
    assert not torch.equal(dataset.splits["val"].x[:20], dataset.splits["test"].x[:20])


def test_a_pack_of_generated_graphs_is_what_a_recipe_reads(tmp_path, capsys):
    main(["peptides-struct", "--graphs", "4", "--out", str(tmp_path / "g.safetensors")])
    dataset = open_for(find_recipe("peptides-struct:released"), tmp_path, tmp_path / "g.safetensors")
    assert [part.num_graphs for part in dataset.splits.values()] == [4, 1, 1]
    assert "bytes" in capsys.readouterr().out
