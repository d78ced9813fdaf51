"""The short form of the attack on files; in full: ``python -m tools.attack_files``."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tools import attack_files


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with CUDA cannot be forked")
def test_some_files():
    pytest.importorskip("rdkit")
    # In a process of its own: the memory of one that has run many tests counts as well.
    command = [sys.executable, "-W", "ignore", "-m", "tools.attack_files", "--files", "25", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", ".join(f"{name} 0" for name in attack_files.FOUND) in done.stdout
    read, refused = map(int, re.search(r"read (\d+), refused in one line (\d+)", done.stdout).groups())
    assert read + refused == 25
    assert refused > 5


def test_it_notices(tmp_path):
    """What must not happen is found where it does."""
    path = tmp_path / "file"
    path.write_bytes(b"")

    def harmful(path: Path) -> None:
        raise KeyError("a key")

    def wordy(path: Path) -> None:
        print("error: " + "x" * 400, file=attack_files.sys.stderr)
        raise SystemExit(2)

    def honest(path: Path) -> None:
        raise ValueError("file: expected something else, got this")

    outcomes = [attack_files.attempt(read, path).partition(" ")[0] for read in (harmful, wordy, honest, os.stat)]
    assert outcomes == ["traceback", "traceback", "refused", "read"]
