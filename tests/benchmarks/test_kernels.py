"""The command line of the GPU benchmarks from end to end, on a CPU that stands in for the GPU."""

import itertools

import pytest
import torch

from benchmarks import kernels, kernels_models
from benchmarks.harness import Timing
from benchmarks.kernels_models import Graph

pytest.importorskip("triton")


@pytest.fixture
def pretended(monkeypatch):
    """Steps are run, and take a millisecond for each that ran before; rows are kept."""
    rows, clock = [], itertools.count(1)

    def measure(step, *rest, **named):
        step()
        time = float(next(clock))
        return Timing(time, time, time, 1.0, "launched")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(kernels, "memory_gb", lambda: 1.0)
    monkeypatch.setattr(kernels, "copy_bandwidth", lambda: 1e12)
    monkeypatch.setattr(kernels, "hardware", lambda device: "a pretence")
    monkeypatch.setattr(kernels, "append", lambda out, found, device: rows.extend(found))
    monkeypatch.setattr(kernels_models, "measure", measure)
    monkeypatch.setattr(kernels_models, "DENSE", [Graph("small", 30, 90, k=5)])
    return rows


def test_growth_measures_sizes_and_their_slope(pretended, capsys):
    kernels.main(["--growth", "--nodes", "40", "80", "160", "10000000", "--degree", "2"])
    said = capsys.readouterr().out
    assert "recompute=2, output in bf16: error" in said
    assert "10,000,000 nodes, degree 2, bf16, recompute=2: left out, needs about" in said
    assert [row["workload"] for row in pretended[::2]] == [
        "40 nodes, degree 2",
        "80 nodes, degree 2",
        "160 nodes, degree 2",
        "growth, degree 2, 40 to 160 nodes",
    ]
    assert [row["variant"] for row in pretended[-2:]] == [f"gssc, {kind}, bf16, recompute=2" for kind in KINDS]
    slope = kernels_models.slopes([120, 240, 480], [1.0, 3.0, 5.0])[0]
    assert pretended[-2]["ratio"] == f"{slope:.3f}"


KINDS = ("training", "inference")


def test_numbers_that_are_not_finite_are_not_timed(pretended, monkeypatch):
    monkeypatch.setattr(kernels_models, "_finite", lambda found: False)
    monkeypatch.setattr(kernels_models, "CHANNELS", 1 << 25)
    monkeypatch.setattr(kernels_models, "estimated_gb", lambda graph: 0.0)
    monkeypatch.setattr(kernels, "gates", lambda *given: None)
    with pytest.raises(SystemExit, match="some results were wrong"):
        kernels.main(["--models", "--nodes", "40", "--degree", "2"])
    assert all(row["note"].startswith("wrong: not all numbers are finite") for row in pretended)
    assert "p50_ms" not in pretended[0]
