"""How processes end: with a status that says so, in time, and with nothing half-written left behind."""

import os
import shutil
import signal
import sys
import time

import pytest
import torch
from small_run import SMALL, run_small, write_cycles
from train.test_processes import free_port

from gssc import files
from gssc.cli import main
from gssc.files import write_atomic
from gssc.train import stopping
from gssc.train.processes import joined
from gssc.train.run_folder import RunFolder

forked = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="a process with CUDA cannot be forked"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def during_the_second_epoch(monkeypatch, act):
    log = RunFolder.log

    def disturbed(self, record):
        if record["epoch"] == 2:
            act(self)
        log(self, record)

    monkeypatch.setattr(RunFolder, "log", disturbed)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_was_asked_to_end_says_so(tmp_path, monkeypatch, capsys, number, status):
    write_cycles(tmp_path)
    monkeypatch.setattr(stopping, "_caught", [])
    during_the_second_epoch(monkeypatch, lambda run: os.kill(os.getpid(), number))
    words = ["gssc", "train", "cycles-3", *SMALL, "--data-root", tmp_path, "--out", tmp_path / "out", "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*map(str, words), "--cache", str(tmp_path / "cache")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    assert "--resume goes on from" in capsys.readouterr().out
    monkeypatch.undo()
    monkeypatch.setattr(stopping, "_caught", [])
    monkeypatch.setattr(sys, "argv", [*map(str, words), "--cache", str(tmp_path / "cache"), "--resume"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda run: run.metrics.unlink(), r"metrics\.jsonl"),
        (lambda run: run.metrics.write_text(""), "which has changed"),
        (lambda run: shutil.rmtree(run.path), r"metrics\.jsonl"),
        (lambda run: (run.path / "dataset.json").unlink(), r"run: expected its dataset\.json"),
    ],
)
def test_what_is_deleted_while_a_run_goes_on_is_missed(tmp_path, monkeypatch, act, message):
    during_the_second_epoch(monkeypatch, act)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        run_small(tmp_path, "run", "train.epochs=2")


def test_what_was_deleted_is_missed_by_a_run_that_resumes(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(stopping.Stopping, "stops", lambda self: True)
        folder, summary = run_small(tmp_path, "run", "train.epochs=2", "train.checkpoint_minutes=0")
    assert summary is None
    run_small(tmp_path, "run", "train.epochs=2", "train.checkpoint_minutes=0", resume=True)
    kept = (folder / "metrics.jsonl").read_bytes()
    for name in ("metrics.jsonl", "model.safetensors"):
        shutil.copytree(folder, tmp_path / name)
        (tmp_path / name / name).unlink()
        with pytest.raises(ValueError, match=f"run: expected its {name}"):
            run_small(tmp_path, name, "train.epochs=2", "train.checkpoint_minutes=0", resume=True)
    (folder / "summary.json").unlink()
    (folder / "metrics.jsonl").write_bytes(kept[:20])
    with pytest.raises(ValueError, match=r"metrics\.jsonl line 1: expected"):
        run_small(tmp_path, "run", "train.epochs=2", "train.checkpoint_minutes=0", resume=True)


def child(work) -> int:
    """A forked process; its number."""
    number = os.fork()
    if number == 0:
        try:
            work()
        finally:
            os._exit(0)
    return number


class TestRanks:
    pytestmark = forked

    @pytest.mark.parametrize("fate", ["dies", "stalls"])
    def test_one_that_is_gone_is_one_line_in_time(self, tmp_path, monkeypatch, fate):
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", free_port())
        monkeypatch.setenv("WORLD_SIZE", "2")

        def rank(number: int) -> None:
            os.environ["RANK"] = str(number)
            try:
                with joined("cpu", 1.5) as processes:
                    assert processes.any(number == 0)
                    if number == 1:
                        os._exit(9) if fate == "dies" else time.sleep(30)
                    processes.any(True)
            except Exception as error:
                (tmp_path / f"{number}").write_text(f"{type(error).__name__} {error}")

        start = time.monotonic()
        first, second = child(lambda: rank(0)), child(lambda: rank(1))
        os.waitpid(first, 0)
        assert time.monotonic() - start < 15
        os.kill(second, signal.SIGKILL)
        os.waitpid(second, 0)
        line = (tmp_path / "0").read_text()
        got = "all 2 to answer within 1.5 s (--rank-timeout), got one that died or stalled"
        assert line == f"ValueError processes: expected {got}"


class TestLeftovers:
    pytestmark = forked

    def test_what_a_killed_process_left_is_removed_by_the_next_that_writes_there(self, tmp_path):
        def dies() -> None:
            os.replace = lambda *_: os._exit(9)
            write_atomic(tmp_path / "file", "half")

        os.waitpid(child(dies), 0)
        (left,) = tmp_path.iterdir()
        assert left.name.endswith(".tmp")
        mine = tmp_path / f".other.{files._mark()}.tmp"  # of a process that lives
        mine.write_text("")
        files.remove_dead.cache_clear()
        write_atomic(tmp_path / "file", "whole")
        assert sorted(tmp_path.iterdir()) == sorted([mine, tmp_path / "file"])
