"""The results file read back: the last row of each kind, and what its words say in numbers."""

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gssc.checks import fail

WORDS = ("benchmark", "workload", "variant", "ratio", "note", "device", "commit", "date")
PUBLISHED = Path(__file__).with_name("published.csv")
# How workloads say how many nodes they have.
NODES = (r"\bn=(\d+)\b", r"one graph of ([\d,]+)$", r"^([\d,]+) nodes,", r"^(\d+), (?:training|inference)$")


@dataclass(frozen=True)
class Measured:
    """One row; times in milliseconds, ``None`` where the row has none."""

    benchmark: str
    workload: str
    variant: str
    p20: float | None
    p50: float | None
    p80: float | None
    peak_mb: float | None
    ratio: str
    note: str
    device: str
    commit: str
    date: str

    @property
    def nodes(self) -> int | None:
        for pattern in NODES:
            if match := re.search(pattern, self.workload):
                return int(match.group(1).replace(",", ""))
        return None

    @property
    def gpu(self) -> bool:
        return "NVIDIA" in self.device or "AMD Instinct" in self.device

    @property
    def good(self) -> bool:
        """Whether the row is a time of something that worked."""
        return self.p50 is not None and not self.note.startswith(("no convergence", "wrong", "time limit"))


def read_results(path: Path) -> list[Measured]:
    """The last row of every benchmark, workload, variant and device, in the order in which they first appeared."""
    if not path.is_file():
        fail("results", "a CSV file that `python -m benchmarks` wrote", str(path))
    latest: dict[tuple[str, ...], Measured] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                measured = Measured(
                    p20=_number(row["p20_ms"]),
                    p50=_number(row["p50_ms"]),
                    p80=_number(row["p80_ms"]),
                    peak_mb=_number(row["peak_mb"]),
                    **{name: row[name] for name in WORDS},
                )
            except (KeyError, ValueError, TypeError) as error:
                fail(f"{path}, line {number}", "a row of benchmark results", repr(error))
            latest[measured.benchmark, measured.workload, measured.variant, measured.device] = measured
    return list(latest.values())


def _number(text: str) -> float | None:
    return float(text) if text else None


def published_models() -> list[Measured]:
    """What the authors' code and GraphGPS take for whole models, as published figures: rows like those measured."""
    rows = []
    for row in csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()):
        workload = f"{int(row['nodes']):,} nodes, {short_count(int(row['edges']))} edges"
        for kind in ("training", "inference"):
            peak = float(row["peak_mb"]) if kind == "training" else None
            time = float(row[f"{kind}_ms"])
            variant = f"{row['model']}, {kind}"
            rows.append(Measured("published", workload, variant, None, time, None, peak, "", "", "NVIDIA H200", "", ""))
    return rows


def short_count(edges: int) -> str:
    """``250k``, ``1.6M``."""
    return f"{edges // 1000}k" if edges < 1_000_000 else f"{edges / 1e6:.1f}M"


def lines_by_variant(rows: Iterable[Measured], value: str) -> dict[str, list[tuple[int, float]]]:
    """Points (nodes, value) of every variant, in order of nodes; ``value`` is a field such as ``p50``."""
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        number = getattr(row, value)
        if row.good and row.nodes is not None and number is not None:
            lines.setdefault(row.variant, {})[row.nodes] = number
    return {variant: sorted(points.items()) for variant, points in lines.items()}
