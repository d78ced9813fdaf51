"""The short form of the attack on runs; in full: ``python -m tools.attack_runs``."""

import os

import pytest
import torch

from tools import attack_runs


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with CUDA cannot be forked")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_two_kills():
    threads = torch.get_num_threads()
    counts = attack_runs.attack(2, 0, 3)
    torch.set_num_threads(threads)
    assert counts["kills"] == 2
    assert counts["other bytes"] == counts["temporary files"] == counts["errors"] == 0
