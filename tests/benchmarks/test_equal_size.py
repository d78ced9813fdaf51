"""Models of equal size on a small road graph, and how far they hear."""

import pytest
import torch

from benchmarks import equal_size, influence
from gssc.nn import GSSConv


@pytest.mark.parametrize("model", equal_size.MODELS)
def test_every_model_has_about_as_many_parameters(model):
    about = {"task": {"outputs": 10, "level": "node"}, "node_features": 37, "edge_features": None}
    sizes = {}
    for name in ("GSSC", model):
        width = equal_size.width_of(name, 32, 37, 10)
        with torch.device("meta"):
            built = equal_size.build_model(equal_size.recipe_of(equal_size.settings_of(name, width, 1, 0.01)), about)
        sizes[name] = sum(parameter.numel() for parameter in built.parameters())
        assert len(built.layers) == 4
        assert isinstance(built.layers[0].glob, GSSConv) == name.startswith("GSSC")
    assert sizes[model] == pytest.approx(sizes["GSSC"], rel=0.07)


def test_a_graph_by_name_and_by_file(tmp_path):
    data = equal_size.graph_of("roads-100")
    assert 90 < data.num_nodes <= 121
    assert data.edge_attr is None
    assert data.is_undirected()
    torch.save(data, tmp_path / "file.pt")
    assert torch.equal(equal_size.graph_of(str(tmp_path / "file.pt")).edge_index, data.edge_index)
    with pytest.raises(ValueError, match="graph: expected a number of nodes from 100 behind roads-, got 'roads-9'"):
        equal_size.graph_of("roads-9")


def test_scores_once_and_the_picture_from_the_same_runs(tmp_path, capsys, monkeypatch):
    arguments = ("roads-100", "GCN,SGFormer", 4, 1, "0.003,0.01", 2, "0.2", tmp_path / "runs")
    equal_size.main(*arguments)
    rows = capsys.readouterr().out.splitlines()[-2:]
    assert [row.split(" | ")[0] for row in rows] == ["| GCN", "| SGFormer"]
    assert all(len(row.split(" | ")[-1].split(", ")) == 2 for row in rows)
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith("gcn"))
    assert len(runs) == 3
    assert {"gcn-lr-0.003-seed-0", "gcn-lr-0.01-seed-0"} <= set(runs)
    equal_size.main("roads-100", "GCN", 4, 1, "0.01", 1, "0.2,0.5", tmp_path / "runs")
    assert (tmp_path / "runs" / "gcn-lr-0.01-dropout-0.5-seed-0").is_dir()
    capsys.readouterr()
    monkeypatch.setattr(equal_size.gssc, "fit", None)  # nothing is trained again
    equal_size.main(*arguments)
    assert capsys.readouterr().out.splitlines()[-2:] == rows
    influence.main(tmp_path / "runs", tmp_path / "picture.svg", "GCN,SGFormer", 2)
    gcn, sgformer = (row.split(" | ") for row in capsys.readouterr().out.splitlines()[-2:])
    assert float(gcn[1]) > 0.0
    assert float(gcn[5]) == 0.0  # five edges away, four layers
    assert float(sgformer[5]) > 0.0
    assert b"</svg>" in (tmp_path / "picture.svg").read_bytes()
    with pytest.raises(ValueError, match="runs: expected a finished run of GSSC with seed 0"):
        influence.main(tmp_path / "runs", tmp_path / "picture.svg", "GSSC", 2)
