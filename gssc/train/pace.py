"""A word when training has become much slower than it was: what a user would notice hours later."""

import statistics
import time
from collections.abc import Callable

WINDOW = 10.0  # seconds over which steps are counted
FIRST = 12  # windows that say what is usual: the first minutes
COLLAPSE = 4  # times slower than usual


class Pace:
    """Counts steps; says once that they have become ``COLLAPSE`` times slower than in the first minutes."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say, self.usual, self.said = say, list[float](), False
        self.since, self.steps = time.monotonic(), 0

    def step(self) -> None:
        """To be called before every step."""
        now = time.monotonic()
        if now - self.since >= WINDOW:
            self._window(self.steps / (now - self.since))
            self.since, self.steps = now, 0
        self.steps += 1

    def skip(self, seconds: float) -> None:
        """Time since the last step that went into something else."""
        self.since += seconds

    def _window(self, rate: float) -> None:
        usual = statistics.median(self.usual) if self.usual else 0.0
        if rate * COLLAPSE >= usual:
            self.usual = [*self.usual, rate][:FIRST]
        elif not self.said:
            self.said = True
            self.say(
                f"training is {usual / max(rate, 1e-9):.0f} times slower than in its first minutes: do other programs "
                "use the machine, or its memory?"
            )
