import csv
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.harness import FIELDS, append, peak_memory, timed

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys
from benchmarks.graphs import GRAPHS
from benchmarks.harness import peak_memory
from gssc.spectra.solve import solve
solver, graph = sys.argv[1:]
solve(GRAPHS[graph](2500), "sym", 8, solver=solver)
for n in (3_000, 12_000):
    adjacency = GRAPHS[graph](n)
    with peak_memory() as peak:
        solve(adjacency, "sym", 8, solver=solver)
    print(peak["mb"])
"""


def test_percentiles_are_ordered_and_in_milliseconds():
    p20, p50, p80 = timed(lambda: time.sleep(0.002), seconds=0.02)
    assert 2.0 <= p20 <= p50 <= p80


def test_rows_are_appended_with_their_circumstances(tmp_path):
    path = tmp_path / "new" / "results.csv"
    append(path, [{"benchmark": "a", "p50_ms": 1}])
    append(path, [{"benchmark": "b", "p50_ms": 2}])
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["benchmark"] for row in rows] == ["a", "b"]
    assert tuple(rows[0]) == FIELDS
    assert rows[0]["torch"] == torch.__version__
    assert rows[0]["date"]


def test_peak_of_one_array():
    with peak_memory() as peak:
        np.ones(40 * 2**17).sum()
    assert 38.0 <= peak["mb"] <= 80.0


@pytest.mark.parametrize(
    ("solver", "graph"), [("chebyshev", "powerlaw"), ("chebyshev", "grid"), ("shift_invert", "grid")]
)
def test_memory_is_linear(solver, graph):
    command = [sys.executable, "-c", SCRIPT, solver, graph]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    small, large = (float(line) for line in done.stdout.split())
    assert small > 0.0
    # Four times the nodes; a dense matrix would take sixteen times the memory, and 1 GB.
    assert large <= 6.0 * small
    assert large <= 150.0
