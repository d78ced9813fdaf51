"""The benchmark of the product compares its two ways, and refuses to time a wrong one."""

import csv

import pytest
import torch

from benchmarks import spectra_product
from gssc.ops.triton_support import HAS_TRITON

pytestmark = pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def run(tmp_path):
    options = ["--nodes", "100", "--graphs", "grid", "--seconds", "0", "--device", DEVICE, "--tiles", "8192"]
    spectra_product.main([*options, "--out", str(tmp_path / "out.csv")])


def test_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(spectra_product, "STEPS", 1)
    run(tmp_path)
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["variant"] for row in rows] == 2 * ["torch.sparse", "fused tile=8192"]
    assert all(float(row["p50_ms"]) > 0 for row in rows)
    assert capsys.readouterr().out.count("GB/s") == 4


def test_a_wrong_product_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(spectra_product, "STEPS", 1)
    monkeypatch.setattr(spectra_product, "fused_step", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="off by"):
        run(tmp_path)
