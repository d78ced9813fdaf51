import csv

import pytest
import torch

from benchmarks import epochs
from benchmarks.epochs import SIZES, Work, generated


@pytest.mark.parametrize("name", SIZES)
def test_generated_graphs_have_both_directions_and_the_size_asked_for(name):
    size, graphs = SIZES[name], generated(name, 3, 0)
    assert graphs.num_graphs == 3
    assert 0.2 * size.nodes < graphs.num_nodes / 3 < 5 * size.nodes
    assert int(graphs.edge_index.min()) >= 0
    assert graphs.edge_index.shape[1] == graphs.num_edges


def test_steps_of_several_runs_are_timed_and_recorded(tmp_path, capsys):
    out = tmp_path / "rows.csv"
    options = "molhiv --seeds 1 2 --device cpu --batch-size 2 --steps 2 --epochs 1 --precision float32 --out"
    epochs.main([*options.split(), str(out)])
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["variant"] for row in rows] == ["1 at once", "2 at once"]
    assert all(float(row["p50_ms"]) > 0 for row in rows)
    assert "molhiv, batch 2, float32, 2 at once" in capsys.readouterr().out


def test_an_epoch_has_the_steps_of_the_dataset():
    work = Work("molhiv", 32, "float32", torch.device("cpu"), 1)
    assert work.steps_of_epoch == 1029
    assert work.floor_ms(1e12) == pytest.approx(2 * work.floor_ms(2e12))
