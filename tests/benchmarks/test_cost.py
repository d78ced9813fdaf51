import csv
import sys

import pytest
import torch

from benchmarks import cost
from benchmarks.graphs import voc_like


@pytest.mark.parametrize("recipe", cost.RECIPES)
def test_cost_is_measured_and_recorded(recipe, tmp_path, monkeypatch, capsys):
    out, page = tmp_path / "results.csv", tmp_path / "cost.md"
    page.write_text("# Cost\n\nMine.\n")
    words = ["cost", recipe, "--generate", "--graphs", "4", "--epochs", "2", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*words, "--out", str(out), "--page", str(page)])
    full = cost.find_recipe
    changes = ["model.layers=1", "model.channels=32", "spectrum.k=8", "train.batch_size=4"]
    monkeypatch.setattr(cost, "find_recipe", lambda name: full(name).override(changes))
    cost.main()
    assert "preprocessing / training" in capsys.readouterr().out
    with out.open(newline="") as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert set(rows) == {"epoch", "training steps of an epoch", "preprocessing"}
    assert all(float(row["p50_ms"]) > 0 for row in rows.values())
    assert float(rows["training steps of an epoch"]["ratio"]) <= 1.01
    text = page.read_text()
    assert text.startswith("# Cost\n\nMine.\n")
    published = {
        "zinc-12k": "| 10.9 s |  | 6.1 h | 20.6 s | 0.1 % |",
        "voc-sp": "| 13.9 s |  | 1.2 h | 334.8 s | 7.6 % |",
    }
    assert published[recipe] in text
    assert f"python -m benchmarks.cost {recipe} --generate --graphs 4 --epochs 2" in text


def test_the_whole_schedule_is_extrapolated():
    one = cost.Cost("zinc-12k", "zinc-12k", 12_000, 23.2, 2_000, 1.0, 1.5, 30.0)
    assert one.training == 3_000.0
    assert one.ratio == pytest.approx(0.01)
    assert one.cells()[-1] == "1 %"
    assert len(one.cells()) == len(cost.published_cells("zinc-12k")) == 9
    with pytest.raises(ValueError, match="data: expected one of --data-root, --pack and --generate"):
        cost.find_data("zinc-12k", None, None, False, None)
    assert torch.equal(voc_like({"train": 1}).splits["train"].x, voc_like({"train": 1}).splits["train"].x)
