"""When a run saves, and when it stops: by the clock, by the recipe, on request; a word where it has become slow."""

import itertools
import multiprocessing
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gssc.config import TrainConfig
from gssc.train.processes import Processes

# ``train.checkpoint_every`` counts epochs, but where they are short a run is not saved more often than this, except at
# its end and where it stops. Runs that go side by side wait for each other's checkpoints, and so many times as long.
SECONDS_BETWEEN_CHECKPOINTS = 5.0
WINDOW = 10.0  # seconds over which steps are counted
FIRST = 12  # windows that say what is usual: the first minutes
COLLAPSE = 4  # times slower than usual

_caught: list[int] = []  # signals, by this process
_asked: list[int] = []  # those that runs beside each other, in threads of this process, are to hear of


def status() -> int:
    """What the command that was asked to end by a signal ends with; 0 where it was not."""
    return 128 + _caught[-1] if _caught else 0


def asked() -> bool:
    """Whether the runs that this process has started beside each other were asked to end."""
    return bool(_asked)


@contextmanager
def passing_on() -> Iterator[None]:
    """A polite request to end goes to the runs in threads of this process, and to the processes that it has started.

    The terminal sends Ctrl-C to these by itself.
    """

    def note(number: int) -> None:
        _asked.append(number)
        if number == signal.SIGTERM:
            for child in multiprocessing.active_children():
                child.terminate()

    try:
        with _hearing(note):
            yield
    finally:
        _asked.clear()


@contextmanager
def _hearing(note: Callable[[int], None]) -> Iterator[None]:
    """SIGTERM and the first Ctrl-C go to ``note``; a second Ctrl-C ends the program at once.

    Only the main thread may listen.
    """

    def heard(number: int, frame: object) -> None:
        if heard_before and number == signal.SIGINT:
            raise KeyboardInterrupt
        heard_before.append(number)
        _caught.append(number)
        note(number)

    heard_before: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT) if main}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Clock(dict[str, float]):
    """The longest times seen, by kind of work, to foresee whether a piece of it ends before a deadline."""

    def saw(self, work: str, seconds: float) -> None:
        """Remember how long some work took."""
        self[work] = max(seconds, self.get(work, 0.0))

    def needs(self, *work: str) -> float:
        """Seconds to allow for such work, with a margin."""
        return 1.0 + 1.5 * sum(self.get(name, 0.0) for name in work)


class Pace:
    """Says once that steps have become ``COLLAPSE`` times slower than in the first minutes, which people notice late.

    Who makes steps counts them in ``steps``, and asks for a ``look`` before one that comes when it is ``due``.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.usual, self.said = say, list[float](), False
        self.since, self.steps = time.monotonic(), 0
        self.due = self.since + WINDOW

    def skip(self, seconds: float) -> None:
        """Time since the last step that went into something else."""
        self.since += seconds
        self.due += seconds

    def look(self) -> None:
        """Compare the window that ends with the first ones."""
        now = time.monotonic()
        rate = self.steps / (now - self.since)
        self.since, self.steps, self.due = now, 0, now + WINDOW
        usual = statistics.median(self.usual) if self.usual else 0.0
        if rate * COLLAPSE >= usual:
            self.usual = [*self.usual, rate][:FIRST]
        elif not self.said:
            self.said = True
            self.say(
                f"training is {usual / max(rate, 1e-9):.0f} times slower than in its first minutes: do other programs "
                "use the machine, or its memory?"
            )


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
        return self._any(self.interrupted or asked() or late)

    def _any(self, flag: bool) -> bool:
        return self.processes.any(flag) if self.processes.world > 1 else flag

    @contextmanager
    def terminable(self) -> Iterator[None]:
        """A polite request to end (SIGTERM, the first Ctrl-C) is treated like a time limit."""

        def note(number: int) -> None:
            self.interrupted = True

        with _hearing(note):
            yield
