"""The short form of the attack on runs; in full: ``python -m tools.attack_runs``."""

import os
import subprocess
import sys

import pytest
import torch


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with CUDA cannot be forked")
def test_two_kills():
    # In a process of its own: forks of one that has run many tests are slow.
    command = [sys.executable, "-W", "ignore", "-m", "tools.attack_runs", "--kills", "2", "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kills 2, runs " in done.stdout
    assert "other bytes 0, temporary files 0, errors 0" in done.stdout
