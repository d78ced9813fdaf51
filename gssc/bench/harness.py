"""Timing, and the one file that results go to.

A result is a row of a CSV file that says what ran, how long it took (20th, 50th and 80th percentile), how many times
that of its baseline the time is, and where: versions, hardware, commit and date. Rows are appended, never changed.
"""

import csv
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from gssc.environment import commit, hardware

FIELDS = (
    "benchmark",
    "workload",
    "variant",
    "p20_ms",
    "p50_ms",
    "p80_ms",
    "peak_mb",
    "baseline",
    "ratio",
    "note",
    "device",
    "threads",
    "torch",
    "python",
    "commit",
    "date",
)


@contextmanager
def gate(name: str) -> Iterator[None]:
    """Inside, results are compared; where they disagree, the benchmark ends here with one line and times nothing."""
    try:
        yield
    except AssertionError as error:
        reason = " ".join(str(error).split())
        raise SystemExit(f"{name}: wrong, and not timed: {reason}") from None


def timed(function: Callable[[], object], seconds: float = 1.0, minimum: int = 5) -> tuple[float, float, float]:
    """Milliseconds per call (p20, p50, p80), after a warm-up, over at least ``minimum`` calls."""
    function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    samples: list[float] = []
    end = time.perf_counter() + seconds
    while len(samples) < minimum or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        samples.append(1e3 * (time.perf_counter() - start))
    p20, p50, p80 = np.percentile(samples, [20, 50, 80])
    return float(p20), float(p50), float(p80)


def append(path: Path, rows: list[dict[str, object]], device: str = "cpu") -> None:
    """Add rows to the results file, with what is the same for all of them."""
    where = {
        "device": hardware(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        for row in rows:
            writer.writerow({**where, **row})
