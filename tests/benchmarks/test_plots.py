from benchmark_rows import write_results

from benchmarks import plots
from benchmarks.results import read_results


def labels(axis):
    return {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in axis.lines}


def test_figures_hold_the_rows(tmp_path):
    rows = read_results(write_results(tmp_path / "r.csv"))
    (axis,) = plots.conv_figure(rows).axes
    assert labels(axis)["gssc"] == [(500, 1.0), (900, 2.0)]
    assert labels(axis)["fused"] == [(60_000, 0.1)]
    time, memory, growth = plots.models_figure(rows).axes
    assert labels(time)["gssc"] == [(1000, 4.0)]
    assert labels(time)["authors' GSSC (published)"][-1] == (60_000, 233.0)
    assert labels(memory)["gssc"] == [(1000, 30.0)]
    assert labels(growth) == {"gssc, training": [(100_000, 40.0)]}
    (axis,) = plots.spectra_figure(rows).axes
    assert labels(axis) == {"gssc": [(10_000, 0.025)]}


def test_files_are_drawn_as_far_as_there_are_rows(tmp_path):
    results = write_results(tmp_path / "r.csv")
    kept = [line for line in results.read_text().splitlines() if not line.startswith(("kernels", "spectra"))]
    results.write_text("\n".join(kept) + "\n")
    (path,) = plots.draw(results, tmp_path / "figures")
    assert path.name == "bench-conv.svg"
    assert b"</svg>" in path.read_bytes()
