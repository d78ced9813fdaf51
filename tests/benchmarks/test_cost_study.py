"""The cost study at tiny sizes: a row for every part, of about as many parameters, ratios of one run."""

import csv

import pytest
import torch

from benchmarks import cost_study, harness, plots, spectra_large, tables
from benchmarks.cost_study import METHODS, PARTS, main, model_of, parameters, width_of
from benchmarks.results import read_results


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


def test_one_that_runs_out_of_memory_while_it_is_timed_does_not_take_the_others_along():
    def fails():
        raise torch.OutOfMemoryError("no memory")

    cpu = torch.device("cpu")
    found = cost_study.in_turns({"gssc": lambda: torch.ones(1), "grit": fails, "none": lambda: torch.ones(1)}, cpu, 0.0)
    assert list(found) == ["gssc", "none"]


def test_the_same_command_goes_on_where_its_time_was_up(tmp_path, monkeypatch, capsys):
    out, asked = tmp_path / "rows.csv", []

    def study(size, parts, training, device, seconds):
        asked.append((size, training, parts))
        name = f"{size}, {'training' if training else 'inference'}"
        rows = [{"benchmark": "cost-models", "workload": name, "variant": f"{part}, launched"} for part in parts]
        lost = size == "40" and training
        return [
            row | {"note": "out of memory" if lost and row["variant"] == "grit, launched" else "ok"} for row in rows
        ]

    for module in (cost_study, harness):
        monkeypatch.setattr(module, "commit", lambda: "abc1234")
    monkeypatch.setattr(cost_study, "study", study)
    monkeypatch.setattr(spectra_large, "main", lambda words: asked.append(words))
    words = ["--parts", "gssc", "grit", "--device", "cpu", "--out", str(out)]
    main(["--sizes", "30", "40", "50", *words, "--minutes", "0"])  # nothing is begun
    assert asked == []
    assert "time is up before 30 nodes" in capsys.readouterr().out
    main(["--sizes", "30", "40", *words, "--only", "models"])
    done, asked[:] = len(asked), []
    assert done == 4
    main(["--sizes", "30", "40", "50", *words])
    assert asked[:2] == [("50", True, ("gssc",)), ("50", False, ("gssc", "grit"))]  # what was lost is remembered
    assert asked[2][asked[2].index("--sizes") + 1 :][:3] == ["30", "40", "50"]
    row = {"benchmark": "spectra_large", "workload": "paper n=29 edges=9 k=32 sym", "variant": METHODS[-1]}
    harness.append(out, [row | {"p50_ms": 1.0, "note": "ok"}])
    main(["--sizes", "30", "40", "50", *words])
    assert asked[3][asked[3].index("--sizes") + 1 :][:3] == ["40", "50", "--device"]
    monkeypatch.setattr(cost_study, "commit", lambda: "abc1234+")  # other code
    main(["--sizes", "30", *words, "--only", "models"])
    assert len(asked) == 6


def test_rows_of_a_cpu_are_drawn_and_tabled_where_there_are_no_others(tmp_path):
    out, page = tmp_path / "rows.csv", tmp_path / "page.md"
    words = ["--device", "cpu", "--sizes", "30", "--parts", "gssc", "attention", "--only", "models"]
    main([*words, "--seconds", "0", "--out", str(out)])
    row = {"benchmark": "spectra_large", "workload": "paper n=29 edges=9 k=32 sym", "variant": "rrwp", "p50_ms": 1.0}
    harness.append(out, [row | {"note": "ok"}])
    titles = [axis.get_title() for axis in plots.cost_figure(read_results(out)).axes]
    assert titles[0] == "training, launched"
    assert titles[4].startswith("preprocessing, ")
    page.write_text("<!-- begin bench-cost-models -->\n<!-- end bench-cost-models -->\n")
    tables.update_tables(out, page)
    assert "| training, launched, ms |" in page.read_text()
    assert "| attention |" in page.read_text()
