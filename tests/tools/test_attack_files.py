"""The short form of the attack on files; in full: ``python -m tools.attack_files``."""

import os
from pathlib import Path

import pytest
import torch

from tools import attack_files


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with CUDA cannot be forked")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_some_files(tmp_path, monkeypatch, capsys):
    pytest.importorskip("rdkit")
    monkeypatch.setattr(attack_files.tempfile, "tempdir", str(tmp_path))
    threads = torch.get_num_threads()
    counts = attack_files.attack(25, 7)
    torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert {name: counts[name] for name in attack_files.FOUND} == dict.fromkeys(attack_files.FOUND, 0), said
    assert counts["read"] + counts["refused"] == 25
    assert counts["refused"] > 5


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
