"""The numbers of the paper's tables, as published in arXiv 2406.05815.

``published.csv`` holds one line per printed cell, means and deviations with the digits of the print; a dash or N/A has
no line, NaN has one without a number. A value of ours compares as ``ours × factor`` (the paper prints accuracies and
AUROC in percent). ``published_costs.csv`` holds times (Table 4) and numbers of parameters (Tables 6 to 9).
"""

import csv
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple


@dataclass(frozen=True)
class Published:
    """One printed cell."""

    recipe: str  # the task, by the name of its recipe and dataset
    model: str  # as the paper calls it
    own: bool  # whether it is the paper's own method, GSSC
    mean: str  # as printed, e.g. "77.642"; "NaN" where the paper prints that
    std: str  # as printed, or empty
    seeds: int | None  # how many the paper says it averaged over; none for rows that it quotes
    printed_metric: str  # as the paper calls it
    higher_is_better: bool
    metric: str  # what gssc.tasks calls it
    factor: float  # printed value = our value × factor
    source: str  # where it is printed

    @property
    def decimals(self) -> int:
        """Digits behind the point of the printed mean."""
        return len(self.mean.partition(".")[2])

    @property
    def text(self) -> str:
        """Mean ± deviation as printed."""
        return f"{self.mean} ± {self.std}" if self.std else self.mean


class PublishedCost(NamedTuple):
    """A time or size that the paper reports of its own method."""

    value: float
    unit: str


@cache
def all_published() -> tuple[Published, ...]:
    """Every printed cell, table by table."""
    return tuple(
        Published(
            own=row.pop("own") == "yes",
            seeds=int(row.pop("seeds") or 0) or None,
            higher_is_better=row.pop("better") == "higher",
            factor=float(row.pop("factor")),
            **row,
        )
        for row in _lines("published.csv")
    )


@cache
def published_rows(recipe: str, metric: str | None = None) -> tuple[Published, ...]:
    """The rows of one task in the order of the print; none for a task or metric that is not in the paper.

    A result that is printed in two tables appears once, with both as its source.
    """
    rows: dict[tuple[str, str, str], Published] = {}
    for row in all_published():
        if row.recipe == recipe and metric in (None, row.metric):
            key = (row.model, row.mean, row.std)
            if key in rows:
                row = replace(rows[key], source=f"{rows[key].source} and {row.source.rpartition(', ')[2]}")
            rows[key] = row
    return tuple(rows.values())


def published_gssc(recipe: str, metric: str | None = None) -> Published | None:
    """The paper's own result on a task."""
    return next((row for row in published_rows(recipe, metric) if row.own), None)


@cache
def published_costs(recipe: str) -> dict[str, PublishedCost]:
    """Times and sizes that the paper reports of GSSC on a task, by quantity."""
    return {
        row["quantity"]: PublishedCost(float(row["value"]), row["unit"])
        for row in _lines("published_costs.csv")
        if row["recipe"] == recipe
    }


def _lines(name: str) -> list[dict[str, str]]:
    text = files("gssc.report").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
