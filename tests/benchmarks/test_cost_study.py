"""The cost study at tiny sizes: a row for every part, of about as many parameters, ratios of one run."""

import csv

import pytest
import torch

from benchmarks import cost_study, spectra_large
from benchmarks.cost_study import PARTS, main, model_of, parameters, width_of


def test_every_part_has_a_row_for_training_and_inference(tmp_path):
    out = tmp_path / "rows.csv"
    main(["--device", "cpu", "--sizes", "30", "--seconds", "0", "--only", "models", "--out", str(out)])
    rows = list(csv.DictReader(out.read_text().splitlines()))
    kinds = ("30, training", "30, inference")
    assert [(row["workload"], row["variant"]) for row in rows] == [
        (kind, f"{part}, launched") for kind in kinds for part in PARTS
    ]
    base = next(float(row["p50_ms"]) for row in rows if row["variant"] == "attention, launched")
    for row in rows[: len(PARTS)]:
        assert float(row["ratio"]) == pytest.approx(float(row["p50_ms"]) / base, rel=1e-2)


def test_parts_have_about_as_many_parameters():
    counts = {}
    for part in set(PARTS) - {"none", "GPSConv"}:
        with torch.device("meta"):
            counts[part] = parameters(model_of(part, True, width_of(part, True)))
    assert max(counts.values()) < 1.1 * counts["attention"]
    assert min(counts.values()) > 0.9 * counts["attention"]


def test_one_out_of_memory_is_not_tried_again(tmp_path, monkeypatch):
    asked = []

    def study(size, parts, training, device, seconds):
        asked.append((size, parts))
        return [cost_study._out_of_memory(size, part, training) for part in parts if part == "grit"]

    monkeypatch.setattr(cost_study, "study", study)
    monkeypatch.setattr(spectra_large, "main", lambda words: asked.append(words))
    out = tmp_path / "rows.csv"
    main(["--sizes", "30", "molecules", "40", "--parts", "gssc", "grit", "--device", "cpu", "--out", str(out)])
    assert [parts for _, parts in asked[:2]] == [("gssc", "grit")] * 2
    assert [parts for _, parts in asked[2:4]] == [("gssc", "grit")] * 2  # another kind of graphs
    assert [parts for _, parts in asked[4:6]] == [("gssc",)] * 2
    assert len(list(csv.DictReader(out.read_text().splitlines()))) == 6
    assert asked[6][asked[6].index("--sizes") + 1 :][:2] == ["30", "40"]
