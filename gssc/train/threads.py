"""How many threads training takes of cores that other programs use as well.

The threads of an operation wait for each other at its end, by spinning. Where one of them has lost its core to another
program for some milliseconds, all of them burn theirs until it is back, hundreds of times in a step: two busy
neighbours on two cores cost not half of the speed but nearly all. Fewer threads than cores are left have nobody to
wait for. (Threads that sleep instead, ``OMP_WAIT_POLICY=passive``, are slow on a machine that is free, too.)
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SECONDS = 1.0  # between two looks
PROBE = 0.1  # seconds of work before the first, since the first step may take very long
ENOUGH = 0.9  # of the time that threads could run they do: the cores are theirs
FIRST_REST = 60.0  # seconds until all threads are tried again, twice as long each time
TASKS = Path("/proc/self/task")


class Threads:
    """Gives way: as many threads as there are cores left, from what the kernel says of how long threads waited for one.

    Asked between steps. Where the kernel says nothing (not Linux), threads stay as many as they are.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.most, self.say = torch.get_num_threads(), say
        self.rest, self.until, self.said = FIRST_REST, 0.0, False
        self._begin()

    def _begin(self) -> None:
        self.since, self.times = time.monotonic(), core_times()

    def look(self, at_once: bool = False) -> None:
        """Take fewer threads where they had to wait for cores since the last look; all again after a rest."""
        now = time.monotonic()
        if now - self.since < SECONDS and not at_once:
            return
        threads = torch.get_num_threads()
        left = cores_left(threads, self.times, core_times())
        if left < threads:
            torch.set_num_threads(left)
            self.until, self.rest = now + self.rest, 2 * self.rest
            if not self.said:
                self.said = True
                self.say(
                    f"other programs use the cores: {left} of {threads} threads from here on, more when they are free "
                    "(results agree to rounding; --threads N or OMP_NUM_THREADS keeps a number)"
                )
        elif threads < self.most and now > self.until:
            torch.set_num_threads(self.most)
        self._begin()

    def probe(self) -> None:
        """Look after a little work that means nothing."""
        rows, end = torch.zeros(2**20), time.perf_counter() + PROBE
        while time.perf_counter() < end:
            rows.add_(1)
        self.look(at_once=True)


@contextmanager
def giving_way(say: Callable[[str], None], wanted: bool) -> Iterator[Callable[[], None]]:
    """Around training: what to call between steps; afterwards there are as many threads as before."""
    before = torch.get_num_threads()
    if not wanted or before == 1 or "OMP_NUM_THREADS" in os.environ:
        yield lambda: None
        return
    threads = Threads(say)
    threads.probe()
    try:
        yield threads.look
    finally:
        torch.set_num_threads(before)


def core_times() -> dict[str, tuple[int, int]]:
    """Of every thread of this process, nanoseconds that it ran and that it waited for a core."""
    times = {}
    for task in TASKS.glob("*/schedstat"):
        try:
            ran, waited, _ = map(int, task.read_text(encoding="ascii").split())
        except (OSError, ValueError):  # a thread that has just ended, or a system that keeps no such record
            continue
        times[task.parent.name] = ran, waited
    return times


def cores_left(threads: int, before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> int:
    """Of so many cores those that this process had, by the share of the time wanted that it ran."""
    changes = [[b - a for a, b in zip(before.get(name, (0, 0)), now, strict=True)] for name, now in after.items()]
    ran, waited = (sum(column) for column in zip(*changes, strict=True)) if changes else (0, 0)
    share = ran / max(ran + waited, 1) if waited else 1.0
    return threads if share >= ENOUGH else max(1, int(threads * share))
