"""The command: a tiny workload end to end, a wrong one, one without its device."""

import csv
import os

import pytest
from benchmark_rows import write_results
from typer.testing import CliRunner

from benchmarks import conv, registry
from benchmarks.__main__ import app, main
from benchmarks.registry import Workload

runner = CliRunner()
TINY = Workload(
    "tiny",
    "One.",
    "benchmarks.conv",
    "cpu",
    0.1,
    ("--nodes", "60", "--growth", "50", "100", "--selective", "30", "60"),
    seconds=True,
)
WRONG = Workload("wrong", "Two.", "wrong_workload", "cpu", 0.1)
BIG = Workload("big", "Three.", "benchmarks.kernels", "gpu", 0.1)


@pytest.fixture
def declared(monkeypatch, tmp_path):
    """A registry of three, one of which computes something wrong."""
    (tmp_path / "wrong_workload.py").write_text("raise SystemExit('wrong_workload: wrong, and not timed: error 1.0')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setattr(registry, "WORKLOADS", (WRONG, TINY, BIG))


def bench(*words):
    return runner.invoke(app, [*map(str, words)], catch_exceptions=False)


def test_right_ones_are_timed_wrong_ones_are_not(declared, tmp_path):
    out = tmp_path / "new" / "results.csv"
    done = bench("--out", out, "--seconds", "0", "--device", "cpu")
    assert done.exit_code == 1
    said = done.output
    assert "wrong: failed: wrong_workload: wrong, and not timed: error 1.0" in said
    assert "big: skipped, it needs a GPU" in said
    assert "tiny: appended to" in said
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == [
        "gssc", "explicit z", "PyTorch attention, float32", "PyG Performer", "gssc", "gssc",
        "gssc, selective", "gssc, selective"
    ]  # fmt: skip
    assert all(0 < float(row["p20_ms"]) <= float(row["p50_ms"]) <= float(row["p80_ms"]) for row in rows)
    assert all(float(row["peak_mb"]) >= 0 for row in rows)
    assert all(row["commit"] and row["date"] and row["torch"] and row["device"] for row in rows)


def test_a_wrong_convolution_is_not_timed(monkeypatch, tmp_path):
    right = conv.explicit_z
    monkeypatch.setattr(conv, "explicit_z", lambda *given: 1.01 * right(*given))
    monkeypatch.setattr(conv, "timed", lambda *given: pytest.fail("timed"))
    with pytest.raises(SystemExit, match=r"^benchmarks.conv: wrong, and not timed: convolution against explicit z"):
        conv.main(["--out", str(tmp_path / "r.csv")])
    assert not list(tmp_path.iterdir())


def test_plots_and_tables_without_running(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "run_workloads", lambda *given: pytest.fail("ran"))
    results, document = write_results(tmp_path / "r.csv"), tmp_path / "doc.md"
    document.write_text("<!-- begin bench-conv -->\n<!-- end bench-conv -->\n")
    done = bench("--out", results, "--plot", tmp_path / "figures", "--table", document)
    assert done.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "bench-conv.svg", "bench-models.svg", "bench-spectra.svg"
    ]  # fmt: skip
    assert "explicit z" in document.read_text()


def test_the_list_reads_like_documentation():
    said = " ".join(bench("--list").output.split())
    for name in ("conv", "kernels-growth", "spectra-large"):
        assert name in said
    assert "CPU or GPU" in said
    assert "explicit z tensors" in said


def test_errors_are_one_line(monkeypatch):
    for words, said in ((["konv"], "did you mean 'conv'"), (["conv", "--device", "tpu"], "--device: expected one of")):
        monkeypatch.setattr("sys.argv", ["benchmarks", *words])
        with pytest.raises(SystemExit, match=f"^error: .*{said}"):
            main()
