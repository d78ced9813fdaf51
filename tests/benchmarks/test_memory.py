"""Peak memory is measured, and that of the sparse solvers grows like n + E."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks.harness import peak_memory

SCRIPT = """
import sys
from benchmarks.graphs import GRAPHS
from benchmarks.harness import peak_memory
from gssc.spectra.solve import solve
solver, graph = sys.argv[1:]
solve(GRAPHS[graph](2500), "sym", 8, solver=solver)
for n in (6_000, 24_000):
    adjacency = GRAPHS[graph](n)
    with peak_memory() as peak:
        solve(adjacency, "sym", 8, solver=solver)
    print(peak["mb"])
"""


def test_peak_of_one_array():
    with peak_memory() as peak:
        np.ones(40 * 2**17).sum()
    assert 38.0 <= peak["mb"] <= 80.0


@pytest.mark.parametrize(
    ("solver", "graph"), [("chebyshev", "powerlaw"), ("chebyshev", "grid"), ("shift_invert", "grid")]
)
def test_memory_is_linear(solver, graph):
    done = subprocess.run([sys.executable, "-c", SCRIPT, solver, graph], capture_output=True, text=True, check=True)
    small, large = (float(line) for line in done.stdout.split())
    assert small > 0.0
    # Four times the nodes; a dense matrix would take sixteen times the memory, and 8 GB.
    assert large <= 6.0 * small
    assert large <= 150.0
