"""What a run shows while it runs: a live line in a terminal, plain lines in a log."""

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import track
from rich.table import Table

from gssc.tasks import score_text

# In a log, lines come at most this often (the first epochs and the last always show).
SECONDS_BETWEEN_LINES = 10.0


def plain_console(quiet: bool = False) -> Console:
    """A console that prints text as it is: long lines stay whole, brackets in a path are no markup."""
    return Console(highlight=False, soft_wrap=True, markup=False, quiet=quiet)


def tracked(items: Sequence[Any], what: str, wanted: bool = True) -> Iterable[Any]:
    """The items, with a progress bar in a terminal while they are gone through."""
    console = Console(stderr=True)
    return track(items, what, console=console, transient=True, disable=not (wanted and console.is_terminal))


class Display:
    """Shows epochs of one run; does nothing where ``quiet``."""

    live: Live | None = None
    first_epoch: int | None = None

    def __init__(self, title: str, epochs: int, metric: str, quiet: bool = False, live: bool = True) -> None:
        self.title, self.epochs, self.metric, self.moves = title, epochs, metric, live and not quiet
        self.console = plain_console(quiet)
        self.last_line = -math.inf

    def __enter__(self) -> "Display":
        self.started = time.monotonic()
        if self.console.is_terminal and self.moves:
            self.live = Live(console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def say(self, text: str) -> None:
        """One line of information."""
        self.console.print(f"{self.title}: {text}")

    def epoch(self, record: dict[str, Any], best: float | None) -> None:
        """Show an epoch, as its line in ``metrics.jsonl`` describes it."""
        number = record["epoch"]
        if self.first_epoch is None:
            self.first_epoch = number - 1
        pace = (time.monotonic() - self.started) / max(number - self.first_epoch, 1)
        fields = {
            "epoch": f"{number}/{self.epochs}",
            "train loss": f"{record['train_loss']:.5f}",
            "val loss": f"{record['val_loss']:.5f}" if record.get("val_loss") is not None else "-",
            f"val {self.metric}": score_text(record["val"]) if record.get("val") is not None else "-",
            "best": f"{score_text(best)} (epoch {record['best_epoch']})" if best is not None else "-",
            "graphs/s": f"{record['graphs_per_second']:,.0f}",
            "left": duration(pace * (self.epochs - number)),
        }
        if self.live is not None:
            table = Table(*fields, title=self.title)
            table.add_row(*fields.values())
            self.live.update(table)
        elif number <= 3 or number == self.epochs or time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            self.say("  ".join(f"{name} {value}" for name, value in fields.items()))

    def result(self, summary: dict[str, Any], seconds: float) -> None:
        """What a run has come to, as ``summary.json`` says, and the time of its training."""
        self.say(
            f"validation {summary['metric']} {score_text(summary['validation'])} (epoch {summary['epoch_selected']}), "
            f"test {score_text(summary['test'])}, {duration(seconds)} of training"
        )


def duration(seconds: float) -> str:
    """A time in the largest units that matter: 1h02m, 3m20s, 5s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"
