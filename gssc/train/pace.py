"""A word when training has become much slower than it was: what a user would notice hours later."""

import statistics
import time
from collections.abc import Callable

WINDOW = 10.0  # seconds over which steps are counted
FIRST = 12  # windows that say what is usual: the first minutes
COLLAPSE = 4  # times slower than usual


class Pace:
    """Says once that steps have become ``COLLAPSE`` times slower than in the first minutes.

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
