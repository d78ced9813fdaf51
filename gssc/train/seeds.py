"""Several seeds of one recipe, and what they amount to."""

import statistics
from pathlib import Path
from typing import Any

from gssc.checks import fail
from gssc.files import write_json


def parse_seeds(text: str) -> list[int]:
    """``"0-4"``, ``"3"`` or ``"0,2,5-7"`` as numbers."""
    seeds: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            fail("seeds", "numbers and ranges such as 0-4 or 0,2,5", repr(text))
        seeds += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(seeds))


def aggregate(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation of the scores over seeds."""
    first = summaries[0]
    seconds = sum(summary["train_seconds"] for summary in summaries)
    return {
        **{key: first[key] for key in ("recipe", "dataset", "metric", "higher_is_better", "parameters", "epochs_run")},
        "seeds": [summary["seed"] for summary in summaries],
        **{key: _spread([summary[key] for summary in summaries]) for key in ("validation", "test")},
        "train_seconds": round(seconds, 3),
    }


def write_aggregate(out: Path, summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """`aggregate` into ``OUT/summary.json``."""
    total = aggregate(summaries)
    write_json(out / "summary.json", total)
    return total


def _spread(values: list[float | None]) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else 0.0,
        "values": values,
    }
