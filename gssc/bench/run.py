"""Workloads one after the other, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gssc.bench.registry import Workload


@dataclass(frozen=True)
class Outcome:
    """What became of a workload: ``"done"``, ``"skipped"`` or ``"failed"``, and why."""

    workload: str
    status: str
    reason: str = ""


def command(workload: Workload, device: str, out: Path, seconds: float | None) -> list[str]:
    """The command line of a workload's process."""
    words = [sys.executable, "-m", workload.module, *workload.arguments, "--out", str(out)]
    if workload.needs == "any":
        words += ["--device", device]
    if workload.seconds and seconds is not None:
        words += ["--seconds", str(seconds)]
    return words


def run_workloads(
    workloads: Sequence[Workload], device: str, out: Path, seconds: float | None, say: Callable[[str], None]
) -> list[Outcome]:
    """Run workloads; what needs another device is skipped, what fails or is wrong does not stop the others.

    A module checks its results before it times anything, and ends with one line and a code that is not zero where they
    are wrong: then there is no row of it.
    """
    outcomes = []
    for workload in workloads:
        if workload.needs == "gpu" and device == "cpu":
            outcomes.append(Outcome(workload.name, "skipped", "it needs a GPU"))
            say(f"{workload.name}: skipped, it needs a GPU")
            continue
        say(f"{workload.name}: about {workload.minutes:g} min")
        environment = {**os.environ, **{k: v for k, v in workload.environment.items() if k not in os.environ}}
        done = subprocess.run(
            command(workload, device, out.resolve(), seconds), env=environment, stderr=subprocess.PIPE, text=True
        )
        if done.returncode == 0:
            outcomes.append(Outcome(workload.name, "done"))
            continue
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        outcomes.append(Outcome(workload.name, "failed", lines[-1]))
        say(f"{workload.name}: failed: {lines[-1]}")
    return outcomes
