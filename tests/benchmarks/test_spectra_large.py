"""Large-graph benchmark: graphs are connected and simple, rows are complete, limits hold, the figure is drawn."""

import csv

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from benchmarks import spectra_large
from benchmarks.graphs import GRAPHS


@pytest.mark.parametrize("name", list(GRAPHS))
def test_graphs_are_connected_simple_and_reproducible(name):
    graph = GRAPHS[name](2500)
    assert 2000 <= graph.shape[0] <= 2500
    assert connected_components(graph, directed=False)[0] == 1
    assert (graph.data == 1.0).all()
    assert not graph.diagonal().any()
    assert abs(graph - graph.T).max() == 0.0
    again = GRAPHS[name](2500)
    assert np.array_equal(graph.indices, again.indices)


def test_rows_ratios_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(spectra_large.Child, "ask", lambda self, task, limit: spectra_large.measure(**task))
    monkeypatch.setattr(spectra_large, "REPEAT_BELOW", 0.0)
    table, figure = tmp_path / "large.csv", tmp_path / "large.png"
    methods = ["gssc", "gssc-chebyshev", "eigsh-SA"]
    words = ["--sizes", "2100", "--graphs", "grid", "--k", "4", "--out", str(table), "--plot", str(figure)]
    spectra_large.main([*words, "--methods", *methods])
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == methods
    assert all(row["note"].startswith("ok; residual ") for row in rows)
    assert ["proved" in row["note"] for row in rows] == [True, True, False]
    for row in rows[1:]:
        assert float(row["ratio"]) == pytest.approx(float(row["p50_ms"]) / float(rows[0]["p50_ms"]), rel=1e-2)
    assert figure.stat().st_size > 1000


def test_child_survives_errors_and_limits():
    child = spectra_large.Child()
    task = {"graph": "grid", "n": 100, "method": "gssc", "k": 3, "device": "cpu", "truth": None}
    assert "KeyError" in child.ask({**task, "graph": "nonsense"}, 60)["status"]
    assert child.ask(task, 60)["status"] == "ok"
    first = child.process.pid
    assert child.ask({**task, "n": 250_000, "method": "eigsh-SA"}, 0.2)["status"].startswith("time limit")
    assert child.ask(task, 60)["status"] == "ok"
    assert child.process.pid != first
    child.close()
