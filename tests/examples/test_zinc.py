"""The plain PyTorch Geometric loop of the example learns, and stays short."""

import importlib.util
from pathlib import Path

import torch

PATH = Path(__file__).parents[2] / "examples" / "zinc.py"


def test_it_learns_to_count_rings():
    spec = importlib.util.spec_from_file_location("zinc_example", PATH)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    targets = torch.cat([data.y for data in example.generated(200, 2)])
    guess = (targets - targets.median()).abs().mean()  # the best constant
    error = example.main(["--generated", "300", "--epochs", "6"])
    assert error < 0.7 * guess


def test_it_is_short():
    assert len(PATH.read_text().splitlines()) <= 120
