"""How processes end: with a status that says so, in time, and with nothing half-written left behind."""

import gc
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from queue import SimpleQueue

import pytest
import torch
from small_run import SMALL, run_small, small_recipe, write_cycles
from train.test_processes import free_port

from gssc import files
from gssc.cli import main
from gssc.files import write_atomic
from gssc.train import seeds, stopping
from gssc.train.processes import Processes, joined
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


def test_runs_in_processes_that_were_asked_to_end_can_go_on(tmp_path, monkeypatch, capsys):
    """The two that were being trained leave checkpoints; the third, which waits for one of them, does not begin."""
    write_cycles(tmp_path)
    monkeypatch.setattr(stopping, "_caught", [])
    out, wanted = tmp_path / "out", "train.epochs=100000"
    words = ["gssc", "train", "cycles-3", *SMALL, wanted, "--data-root", tmp_path, "--out", out, "--device", "cpu"]
    words += ["--cache", tmp_path / "cache", "--jobs", "2", "--threads", "1", "--seeds", "0-2"]

    def ask() -> None:
        logs = [out / f"seed-{seed}" / "metrics.jsonl" for seed in (0, 1)]
        while not all(log.exists() and log.read_text() for log in logs):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    for more, status in ((["--quiet"], 143), (["--finish", "--seeds", "0-1", "--jobs", "1"], 0)):
        monkeypatch.setattr(sys, "argv", [*map(str, words), *more])
        if status:
            threading.Thread(target=ask, daemon=True).start()
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == status
        stopping._caught.clear()
        if status:
            assert "stopped, 0 of 3 seeds done; --resume goes on from there" in capsys.readouterr().out
    assert not multiprocessing.active_children()
    assert not (out / "seed-2" / "metrics.jsonl").exists()


def test_runs_beside_each_other_hear_of_it_until_they_have_ended(monkeypatch):
    class Died:
        def submit(self, *run):
            raise BrokenProcessPool

    idle = SimpleQueue()
    idle.put(Died())
    monkeypatch.setattr(stopping, "_caught", [])
    in_thread = stopping.Stopping(small_recipe().train, None, Processes(), stopping.Clock(), 1)
    with stopping.passing_on():
        assert not in_thread.stops()
        with pytest.raises(BrokenProcessPool):
            seeds._in_process(idle)
        signal.raise_signal(signal.SIGTERM)
        assert in_thread.stops()
        assert seeds._in_process(idle) is None
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert not in_thread.stops()
    assert stopping.status() == 143


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
        assert line == f"LostProcessError processes: expected {got}"

    @pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated:FutureWarning")
    def test_what_shared_gradients_with_one_that_stalls_comes_to_its_end(self, tmp_path, monkeypatch):
        """Gradients on their way to the other, which wait for Python's lock, are not waited for with the lock held."""
        monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        monkeypatch.setenv("MASTER_PORT", free_port())
        monkeypatch.setenv("WORLD_SIZE", "2")

        def shares(processes, number: int) -> None:
            model = processes.wrap(torch.nn.Linear(4, 4))
            for step in range(9):
                if step == 5 and number == 1:
                    os.kill(os.getpid(), signal.SIGSTOP)
                model(torch.ones(2, 4)).sum().backward()

        def rank(number: int) -> None:
            os.environ["RANK"] = str(number)
            with pytest.raises(ValueError, match="one that died or stalled"), joined("cpu", 1.0) as processes:
                shares(processes, number)
            gc.collect()
            (tmp_path / "ended").touch()

        first, second = child(lambda: rank(0)), child(lambda: rank(1))
        start = time.monotonic()
        while not (tmp_path / "ended").exists() and time.monotonic() - start < 10:
            time.sleep(0.05)
        for number in (first, second):
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
        assert (tmp_path / "ended").exists()


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
