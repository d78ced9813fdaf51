"""When a run saves, and when it stops: by the clock, by the recipe, on request."""

import itertools
import multiprocessing
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gssc.config import TrainConfig
from gssc.train.pace import Pace
from gssc.train.processes import Processes

# ``train.checkpoint_every`` counts epochs, but where they are short a run is not saved more often than this, except at
# its end and where it stops. Runs that go side by side wait for each other's checkpoints, and so many times as long.
SECONDS_BETWEEN_CHECKPOINTS = 5.0


_caught: list[int] = []  # signals, by this process


def status() -> int:
    """What the command that was asked to end by a signal ends with; 0 where it was not."""
    return 128 + _caught[-1] if _caught else 0


@contextmanager
def passing_on() -> Iterator[None]:
    """A request to end (SIGTERM) goes to the processes that this one has started, which stop as they should."""

    def note(number: int, frame: object) -> None:
        _caught.append(number)
        for child in multiprocessing.active_children():
            child.terminate()

    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, note) if main else None
    try:
        yield
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


class Clock(dict[str, float]):
    """The longest times seen, by kind of work, to foresee whether a piece of it ends before a deadline."""

    def saw(self, work: str, seconds: float) -> None:
        """Remember how long some work took."""
        self[work] = max(seconds, self.get(work, 0.0))

    def needs(self, *work: str) -> float:
        """Seconds to allow for such work, with a margin."""
        return 1.0 + 1.5 * sum(self.get(name, 0.0) for name in work)


class Stopping:
    """Decisions for so many runs that go side by side, until a deadline on ``time.monotonic()``.

    The processes of a run agree on them. Before every step the run gives way to other programs (`gssc.train.threads`).
    """

    def __init__(
        self,
        config: TrainConfig,
        deadline: float | None,
        processes: Processes,
        clock: Clock,
        runs: int,
        say: Callable[[str], None] = print,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        self.config, self.deadline, self.processes, self.clock, self.runs = config, deadline, processes, clock, runs
        self.interrupted = False
        self.last_saved = time.monotonic()
        self.pace = Pace(say)
        self.give_way = give_way

    @contextmanager
    def timing(self, work: str) -> Iterator[None]:
        """Around an ``evaluation``, or the writing of a ``checkpoint``."""
        start = time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        self.clock.saw(work, seconds)
        self.pace.skip(seconds)
        if work == "checkpoint":
            self.last_saved = time.monotonic()

    def due(self) -> bool:
        """Whether the last checkpoint is too old."""
        return self._any(time.monotonic() - self.last_saved > 60 * self.config.checkpoint_minutes)

    def saves_after(self, epoch: int) -> bool:
        """Whether a checkpoint is to be written after this epoch."""
        if epoch == self.config.epochs or self.due():
            return True
        rested = time.monotonic() - self.last_saved >= SECONDS_BETWEEN_CHECKPOINTS * self.runs
        return epoch % self.config.checkpoint_every == 0 and self._any(rested)

    def stops(self) -> bool:
        """Whether there is no time for another step."""
        return self.out_of_time("step", "checkpoint")

    def between_steps(self) -> Callable[[], bool]:
        """To be asked before every step: whether time is up or, after one step at least, a checkpoint is due."""
        asked = itertools.count()

        def stop() -> bool:
            self.give_way()
            if time.monotonic() >= self.pace.due:
                self.pace.look()
            self.pace.steps += 1
            return self.stops() or (next(asked) > 0 and self.due())

        return stop

    def out_of_time(self, *work: str) -> bool:
        """Whether the time left is too short for some work, for any of the processes."""
        late = self.deadline is not None and time.monotonic() + self.clock.needs(*work) > self.deadline
        return self._any(self.interrupted or late)

    def _any(self, flag: bool) -> bool:
        return self.processes.any(flag) if self.processes.world > 1 else flag

    @contextmanager
    def terminable(self) -> Iterator[None]:
        """A polite request to end (SIGTERM, the first Ctrl-C) is treated like a time limit.

        Only the main thread may listen. A second Ctrl-C ends the program at once.
        """

        def note(number: int, frame: object) -> None:
            if self.interrupted and number == signal.SIGINT:
                raise KeyboardInterrupt
            self.interrupted = True
            _caught.append(number)

        main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT) if main}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
