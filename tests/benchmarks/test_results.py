import pytest
from benchmark_rows import ROWS, write_results

from benchmarks.results import lines_by_variant, published_models, read_results


def test_the_last_row_of_each_kind(tmp_path):
    rows = read_results(write_results(tmp_path / "r.csv"))
    assert len(rows) == len(ROWS) - 1
    assert rows[0].p50 == 1.0
    assert [row.nodes for row in rows] == [500, 900, 500, 60_000, None, 1000, 1000, 100_000, None, 10_000, 10_000, None]
    assert rows[3].peak_mb == 80.0
    assert not rows[0].gpu


def test_lines_leave_out_what_did_not_work(tmp_path):
    rows = read_results(write_results(tmp_path / "r.csv"))
    spectra = [row for row in rows if row.benchmark == "spectra_large"]
    assert lines_by_variant(spectra, "p50") == {"gssc": [(10_000, 25.0)]}
    conv = [row for row in rows if row.benchmark == "conv"]
    assert lines_by_variant(conv, "p50") == {"gssc": [(500, 1.0), (900, 2.0)], "explicit z": [(500, 50.0)]}


def test_published_figures():
    rows = {(row.variant, row.nodes): row for row in published_models()}
    assert rows["authors' GSSC, training", 60_000].peak_mb == 36359.0
    assert rows["GraphGPS, inference", 1000].p50 == 6.8
    assert rows["GraphGPS, training", 40_000].workload == "40,000 nodes, 1.6M edges"
    assert ("GraphGPS, training", 60_000) not in rows  # out of memory


def test_damage_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="results: expected a CSV file that `python -m benchmarks` wrote"):
        read_results(tmp_path / "none.csv")
    path = write_results(tmp_path / "r.csv")
    path.write_text(path.read_text().replace(",9.0,", ",nine,"))
    with pytest.raises(ValueError, match=r"r.csv, line 2: expected a row of benchmark results"):
        read_results(path)
