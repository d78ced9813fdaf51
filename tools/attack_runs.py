"""``python -m tools.attack_runs --kills 100 --seed 0``: a small training that is killed at random moments and resumed.

Every kill is a SIGKILL of a process of ``gssc train`` at a random time; the same command with ``--resume`` goes on. A
run that comes to its end must have the bytes of one that nobody killed (but for what the clock decides), and no
temporary file may be left beside it, in its output or in its cache. The exit status is 1 where that is not so.
"""

import argparse
import io
import json
import math
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import gssc.cli
from tools.attack_files import write_cycles

SETTINGS = (
    "model.channels=16", "model.layers=1", "train.batch_size=6", "train.tensorboard=false", "train.ema=0.9",
    "train.batch_stats=reestimated", "train.checkpoint_minutes=0", "model.dropout_local=0.1",
)  # fmt: skip
CLOCKED = ("seconds", "graphs_per_second")


def started(root: Path, out: str, epochs: int) -> int:
    """A process, forked, that begins or resumes a run by the command; its number."""
    places = ["--data-root", root / "data", "--out", root / out, "--cache", root / out / "cache", "--device", "cpu"]
    words = ["gssc", "train", "cycles-3", *SETTINGS, f"train.epochs={epochs}", "--resume", "--quiet", *map(str, places)]
    number = os.fork()
    if number == 0:
        status = 1
        try:
            sys.argv, sys.stdout = words, io.StringIO()
            gssc.cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        finally:
            os._exit(status)
    return number


def ended(number: int, seconds: float | None = None) -> int:
    """The status of a process that ends, or is killed when its time is over."""
    until = time.monotonic() + (math.inf if seconds is None else seconds)
    while time.monotonic() < until:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(number, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def timeless(record: dict[str, Any]) -> dict[str, Any]:
    """All of a record that the clock does not decide."""
    return {key: value for key, value in record.items() if not any(word in key for word in CLOCKED)}


def outcome(out: Path) -> dict[str, Any]:
    """What equal runs agree on, and the names of all files that there are."""
    folder = out / "seed-0"
    names = ("model.safetensors", "predictions.safetensors", "checkpoints/last.safetensors", "config.yaml")
    return {
        **{name: (folder / name).read_bytes() for name in (*names, "dataset.json")},
        "metrics": [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        "summary": timeless(json.loads((folder / "summary.json").read_text())),
        "files": sorted(str(path.relative_to(out)) for path in out.rglob("*")),
    }


def attack(kills: int, seed: int, epochs: int, show: Callable[[str], None] = print) -> dict[str, int]:
    """Counts of kills, of runs that came to their end, and of what went wrong."""
    chance = random.Random(seed)
    torch.set_num_threads(1)
    counts = {"kills": 0, "runs": 0, "other bytes": 0, "temporary files": 0, "errors": 0}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        write_cycles(root / "data")
        ended(started(root, "first", epochs))
        start = time.monotonic()
        ended(started(root, "second", epochs))
        seconds = time.monotonic() - start
        expected = outcome(root / "second")
        counts["other bytes"] += outcome(root / "first") != expected
        out = "run-0"
        while True:
            left_to_do = counts["kills"] < kills
            status = ended(started(root, out, epochs), chance.uniform(0.02, 1.1) * seconds if left_to_do else None)
            if status == -signal.SIGKILL:
                counts["kills"] += 1
                continue
            counts["runs"] += 1
            if status:
                counts["errors"] += 1
                show(f"{out}: ended with status {status}")
            else:
                found = outcome(root / out)
                left = [name for name in found["files"] if Path(name).name.startswith(".")]
                other = [key for key in expected if found[key] != expected[key]]
                counts["temporary files"] += len(left)
                counts["other bytes"] += bool(other)
                if left or other:
                    show(f"{out}: other {', '.join(other)}; left {', '.join(left)}")
            out = f"run-{counts['runs']}"
            if counts["kills"] >= kills:
                return counts


def main(arguments: list[str] | None = None) -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="how often a process is killed")
    parser.add_argument("--epochs", type=int, default=40, help="of the training")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    counts = attack(options.kills, options.seed, options.epochs)
    print(", ".join(f"{name} {count}" for name, count in counts.items()), f"({time.monotonic() - start:.0f} s)")
    return int(any(counts[name] for name in ("other bytes", "temporary files", "errors")))


if __name__ == "__main__":
    sys.exit(main())
