"""A run that is killed again and again, at any moment, ends with the same bytes as one that never was."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from small_run import SMALL, outcome, run_small, write_cycles

from gssc.tasks import Task
from gssc.train import run_state

KILLS = 20
EPOCHS, SLOW_EPOCHS = 4, 60
# Dropout, averaged weights, new statistics, checkpoints inside epochs: all of a run's state.
STATEFUL = ("train.ema=0.9", "train.batch_stats=reestimated", "train.checkpoint_minutes=0")
OVERRIDES = (*STATEFUL, "train.eval_every=2", f"train.epochs={EPOCHS}")
SLOW = (*STATEFUL, f"train.epochs={SLOW_EPOCHS}")


def ticking(at, report) -> None:
    """In this process, die by SIGKILL at moment ``at`` of those at which a run changes its state or its files.

    Moments count from 1. Each is announced through ``report``: what it is, and whether it is before or after it.
    """
    count = 0

    def moment(kind: str) -> None:
        nonlocal count
        count += 1
        os.write(report, f"{kind}\n".encode())
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner, name: str, kind: str) -> None:
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            moment(f"before {kind}")
            result = original(*args, **kwargs)
            moment(f"after {kind}")
            return result

        setattr(owner, name, wrapped)

    around(os, "replace", "replace")
    around(os, "fsync", "fsync")
    around(torch.optim.AdamW, "step", "step")
    around(Task, "score", "score")
    around(Path, "mkdir", "folder")
    around(run_state, "raw_outputs", "predict")
    around(run_state, "build_model", "build")


def life(root: Path, out: str, at: int | None) -> tuple[bool, list[str]]:
    """One life of a run, in a forked process; whether it reached the end, and the moments it saw."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            ticking(at, writer)
            run_small(root, out, *OVERRIDES, resume=True)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        moments = pipe.read().splitlines()
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.waitstatus_to_exitcode(status) == 0
    return not killed, moments


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.skipif(torch.cuda.is_available(), reason="a process with CUDA cannot be forked")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_killed_at_any_moment_it_ends_with_the_same_bytes(tmp_path):
    folder, _ = run_small(tmp_path, "undisturbed", *OVERRIDES)
    expected = outcome(folder)
    ended, all_moments = life(tmp_path, "counted", None)
    assert ended
    assert outcome(tmp_path / "counted") == expected
    chance = random.Random(0)
    number, kinds, epochs = 0, [], []
    while len(kinds) < KILLS:
        out = f"killed-{number}"
        # Lives so long that the kills left are spread over what is left of the run; starting takes some moments too.
        left = len(all_moments) * (1 - epochs_logged(tmp_path / out) / EPOCHS)
        ended, moments = life(tmp_path, out, chance.randint(1, 25 + round(2 * left / (KILLS - len(kinds)))))
        if ended:
            assert outcome(tmp_path / out) == expected
            number += 1
        else:
            kinds.append(moments[-1])
            epochs.append(epochs_logged(tmp_path / out))
    assert life(tmp_path, out, None)[0]
    assert outcome(tmp_path / out) == expected
    assert len(set(kinds)) >= 6, kinds
    assert len(set(epochs)) >= 4, epochs


def epochs_logged(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_processes_killed_at_random_times_end_with_the_same_bytes(tmp_path):
    write_cycles(tmp_path)
    expected_folder, start_seconds, seconds = undisturbed(tmp_path)
    expected = outcome(expected_folder)
    chance = random.Random(0)
    number, stages = 0, []
    while len(stages) < KILLS:
        out = f"killed-{number}"
        left = (seconds - start_seconds) * (1 - epochs_logged(tmp_path / out / "seed-0") / SLOW_EPOCHS)
        longest = 1.2 * start_seconds + 2 * left / (KILLS - len(stages))
        process = started(tmp_path, out)
        try:
            process.wait(timeout=chance.uniform(0.3 * start_seconds, longest))
        except subprocess.TimeoutExpired:
            process.kill()
        if process.wait() == 0:
            assert outcome(tmp_path / out / "seed-0") == expected
            number += 1
        else:
            assert process.returncode == -signal.SIGKILL
            stages.append(stage(tmp_path / out / "seed-0"))
    assert started(tmp_path, out).wait() == 0
    assert outcome(tmp_path / out / "seed-0") == expected
    assert len({epochs for epochs, _ in stages}) >= 4, stages


def started(root: Path, out: str) -> subprocess.Popen:
    """A process that begins or resumes a run in a folder of its own."""
    options = ["--resume", "--quiet", "--device", "cpu", "--data-root", root, "--out", root / out]
    command = [sys.executable, "-m", "gssc", "train", "cycles-3", *SMALL, *SLOW, *options, "--cache", root / "cache"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env=environment)


def undisturbed(root: Path) -> tuple[Path, float, float]:
    """The folder of a run that nobody kills, the seconds until its first checkpoint, and all of its seconds."""
    started(root, "warm").wait()
    begin = time.monotonic()
    process = started(root, "undisturbed")
    folder = root / "undisturbed" / "seed-0"
    while not (folder / "checkpoints" / "last.safetensors").exists():
        assert process.poll() in (None, 0)
        time.sleep(0.01)
    first = time.monotonic() - begin
    assert process.wait() == 0
    return folder, first, time.monotonic() - begin


def stage(folder: Path) -> tuple[int, str]:
    """Where a killed run stood: epochs in its log, and what was going on."""
    if not (folder / "config.yaml").exists():
        return 0, "start"
    if list(folder.rglob("*.tmp")):
        return epochs_logged(folder), "writing"
    return epochs_logged(folder), "testing" if epochs_logged(folder) == SLOW_EPOCHS else "training"
