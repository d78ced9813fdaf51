"""The benchmark's workload looks like molecules, and its two methods agree."""

import csv
from pathlib import Path

import networkx as nx
import torch
from torch_geometric.utils import to_networkx

from benchmarks.graphs import molecule_like
from benchmarks.spectra_small import main


def test_molecules_are_connected_sparse_and_reproducible() -> None:
    dataset = molecule_like(200)
    data = dataset._data
    assert 22 < data.num_nodes / 200 < 24.5
    assert 23 < data.num_edges / 400 < 27
    for graph in dataset[:50]:
        assert graph.is_undirected()
        assert not graph.has_self_loops()
        assert nx.is_connected(to_networkx(graph, to_undirected=True))
    assert torch.equal(molecule_like(200)._data.edge_index, data.edge_index)
    assert not torch.equal(molecule_like(200, seed=1)._data.edge_index, data.edge_index)


def test_rows_are_written(tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.csv"
    for _ in range(2):
        main(["--out", str(out), "--graphs", "60", "--runs", "1"])
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == ["batched", "numpy_loop", "transforms"] * 2
    assert all(float(row["p50_ms"]) > 0 for row in rows)
    assert rows[0]["ratio"] == ""
    assert all(float(row["ratio"]) > 0 for row in rows[1:3])
