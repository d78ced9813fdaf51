import csv

import pytest
import torch
from torch_geometric.utils import to_dense_adj

from benchmarks import size_generalisation as sizes
from gssc.datasets.cycles import cycle_counts


def test_labels_are_exact():
    path = torch.diag(torch.ones(6, dtype=torch.float64), 1)
    path = path + path.T
    marks = torch.zeros(7, 1, dtype=torch.float64)
    marks[2] = 1.0
    assert sizes.distance(path, marks).tolist() == [2, 1, 0, 1, 2, 3, 4]
    for graph in sizes.graphs("cycles", 3, 1, seed=0):
        adjacency = to_dense_adj(graph.edge_index)[0].double()
        assert torch.equal(sizes.cycles(adjacency, graph.x), cycle_counts(adjacency[None])[0, :, 1])
    for graph in sizes.graphs("diffusion", 3, 2, seed=0):  # the eigenpairs of a model make the labels
        p, values = graph.eigvecs.double(), graph.eigvals[0].double()
        found = p @ (torch.exp(-sizes.TIME * values) * graph.eigmask[0] * (p.T @ graph.x[:, 0].double()))
        assert torch.allclose(found, graph.y.double(), atol=1e-5)


def test_models_have_the_same_number_of_parameters():
    wanted = sizes.parameters(sizes.make_model("ours"))
    for name in sizes.MODELS:
        assert sizes.parameters(sizes.make_model(name)) == pytest.approx(wanted, rel=0.06)


def test_runs_are_kept_done_once_and_drawn(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sizes, "TRAIN_GRAPHS", 8)
    monkeypatch.setattr(sizes, "TEST_GRAPHS", 16)
    sizes.data_of.cache_clear()
    out, picture = tmp_path / "sizes.csv", tmp_path / "sizes.svg"
    words = ["--out", str(out), "--steps", "5", "--tasks", "distance", "--models", "ours", "attention, walks"]
    sizes.main([*words, "--seeds", "1", "--largest", "2"])
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert {(row["model"], row["size"]) for row in rows} == {
        (model, size) for model in ("ours", "ours, 32 pairs", "attention, walks") for size in "12"
    }
    ours = {row["size"]: row["error"] for row in rows if row["model"] == "ours"}
    fewer = {row["size"]: row["error"] for row in rows if row["model"] == "ours, 32 pairs"}
    assert ours["1"] == fewer["1"]  # all pairs that there are
    assert ours["2"] != fewer["2"]
    capsys.readouterr()
    sizes.main([*words, "--seeds", "2", "--largest", "2"])
    assert "seed 0" not in (said := capsys.readouterr().out)
    assert "distance, ours, seed 1" in said
    assert len(list(csv.DictReader(out.read_text().splitlines()))) == 2 * len(rows)
    sizes.main([*words, "--draw", str(picture)])
    assert b"</svg>" in picture.read_bytes()
    sizes.data_of.cache_clear()
