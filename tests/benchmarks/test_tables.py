from pathlib import Path

import pytest
from benchmark_rows import write_results

from benchmarks import plots
from benchmarks.harness import append
from benchmarks.results import read_results
from benchmarks.tables import TABLES, update_tables

MARKS = "".join(f"before\n<!-- begin bench-{name} -->\nold\n<!-- end bench-{name} -->\n" for name in TABLES)


def test_what_stands_between_marks_is_replaced(tmp_path):
    results, document = write_results(tmp_path / "r.csv"), tmp_path / "doc.md"
    document.write_text(MARKS)
    update_tables(results, document)
    text = document.read_text()
    assert "old" not in text
    assert text.count("before\n") == len(TABLES)
    assert "| 500 nodes | explicit z |  | 50 |  |  |" in text
    assert (
        "| 60,000 nodes, 3.6M edges | authors' GSSC, training |  | 233 |  | 36,359 | NVIDIA H200 | published |" in text
    )
    assert "- growth, degree 10, 100,000 to 10,000,000 nodes, gssc, training: slope of log time" in text
    update_tables(results, document)
    assert document.read_text() == text


def test_a_loop_of_ones_own(tmp_path):
    results, document = tmp_path / "r.csv", tmp_path / "doc.md"
    gpu = {"benchmark": "launched", "device": "NVIDIA H200", "commit": "0123456", "date": "2026-01-31"}
    times = {"molecules": (10.0, 20.0), "2000": (8.0, 9.0), "60000": (50.0, float("nan"))}
    rows = [
        gpu
        | {"workload": f"{size}, {kind}", "variant": variant, "p50_ms": time, "note": "out of memory" * (time != time)}
        for size, pair in times.items()
        for kind in ("training", "inference")
        for variant, time in zip(("gssc", "GPSConv"), pair, strict=True)
    ]
    replayed = gpu | {"benchmark": "kernels", "variant": "gssc, training, replayed", "p50_ms": 7.0}
    append(results, [*rows, replayed | {"workload": "60,000 nodes, 3.6M edges"}])
    marks = (f"<!-- begin bench-{name} -->\n<!-- end bench-{name} -->\n" for name in ("launched", "speed"))
    document.write_text("".join(marks))
    update_tables(results, document)
    launched, _, speed = document.read_text().partition("begin bench-speed")
    assert "| 32 molecules of 23 nodes | 10 | 20 | 2 | 10 | 20 | 2 |" in launched
    assert "| 2,000 nodes, 40k edges | 8 | 9 | 1.12 | 8 | 9 | 1.12 |" in launched
    assert "| 60,000 nodes, 3.6M edges | 50 | out of memory |  | 50 | out of memory |  |" in launched
    assert "\n\nNVIDIA H200, commit 0123456, 2026-01-31.\n" in launched
    assert "| 60,000 nodes, 3.6M edges | 50 | out of memory |  | 7 |" in speed
    assert "2,000 nodes, 40k" not in speed  # was not replayed


def test_the_cost_study(tmp_path):
    results, document = tmp_path / "r.csv", tmp_path / "doc.md"
    marks = [
        f"<!-- begin bench-{name} -->\n<!-- end bench-{name} -->\n" for name in ("cost-models", "cost-preprocessing")
    ]
    gpu = {"device": "NVIDIA H200", "commit": "0123456", "date": "2026-01-31", "peak_mb": 100}
    models = {("gssc", "launched"): 40.0, ("gssc", "replayed"): 5.0, ("grit", "launched"): None}
    rows = [
        gpu
        | {"benchmark": "cost-models", "workload": f"{size}, training", "variant": f"{part}, {how}"}
        | ({"note": "out of memory"} if time is None and size != "molecules" else {"p50_ms": time or 9.0})
        for size in ("molecules", "1000", "20000")
        for (part, how), time in models.items()
    ]
    paper = gpu | {"benchmark": "spectra_large", "workload": "paper n=1000 edges=5000 k=32 sym"}
    rows += [paper | {"variant": "gssc", "p50_ms": 300.0}, paper | {"variant": "rrwp", "note": "time limit 25 s"}]
    append(results, rows)
    document.write_text("".join(marks))
    update_tables(results, document)
    text = document.read_text()
    assert "| training, launched, ms | molecules | 1,000 | 20,000 |" in text
    assert "| grit | 9 | out of memory | out of memory |" in text
    assert "| gssc | 5 | 5 | 5 |" in text
    assert "| gssc | NVIDIA H200 | 0.3 |" in text
    assert "| rrwp | NVIDIA H200 | time limit 25 s |" in text
    training, replayed, _, memory, preprocessing = plots.cost_figure(read_results(results)).axes[:5]
    assert {line.get_label(): list(line.get_xdata()) for line in training.lines} == {"gssc": [1000, 20000]}
    assert list(replayed.lines[0].get_ydata()) == [5.0, 5.0]
    assert list(memory.lines[0].get_ydata()) == [100.0, 100.0]
    assert list(preprocessing.lines[0].get_ydata()) == [0.3]


def test_the_pages_of_this_repository_are_up_to_date(tmp_path):
    """What is said in the docstring of `benchmarks.__main__` has been run since the last row."""
    root = Path(__file__).parents[2]
    for page in ("docs/benchmarks.md", "docs/cost.md", "README.md"):
        copy = tmp_path / "page.md"
        copy.write_bytes((root / page).read_bytes())
        update_tables(root / "benchmarks/results.csv", copy)
        assert copy.read_bytes() == (root / page).read_bytes(), f"python -m benchmarks --table {page}"


def test_a_kind_without_rows(tmp_path):
    results, document = tmp_path / "r.csv", tmp_path / "doc.md"
    write_results(results).write_text(results.read_text().splitlines()[0] + "\n")
    document.write_text("<!-- begin bench-conv -->\n<!-- end bench-conv -->\n")
    update_tables(results, document)
    assert "Not measured yet." in document.read_text()


def test_errors_leave_the_document(tmp_path):
    results, document = write_results(tmp_path / "r.csv"), tmp_path / "doc.md"
    with pytest.raises(ValueError, match="--table: expected a Markdown file that can be read"):
        update_tables(results, document)
    document.write_text("no marks")
    with pytest.raises(ValueError, match="--table: expected a file with marks"):
        update_tables(results, document)
    document.write_text("<!-- begin bench-konv -->\n<!-- end bench-konv -->\n")
    with pytest.raises(ValueError, match=r"mark in .*doc.md: expected one of 'conv'"):
        update_tables(results, document)
    assert document.read_text() == "<!-- begin bench-konv -->\n<!-- end bench-konv -->\n"
