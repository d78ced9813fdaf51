"""The results file as Markdown tables, written between marks of a document."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.plots import conv_rows, model_rows, sparse_rows
from benchmarks.results import Measured, published_models, read_results
from gssc.checks import check_choice, fail
from gssc.files import write_atomic
from tools.markers import fill

MARK = re.compile(r"<!-- begin bench-([\w-]+) -->")


def update_tables(results: Path, document: Path) -> None:
    """Replace what stands between ``<!-- begin bench-NAME -->`` and ``<!-- end bench-NAME -->`` by that table."""
    rows = read_results(results)
    try:
        text = document.read_text(encoding="utf-8")
    except OSError as error:
        fail("--table", "a Markdown file that can be read", f"{document} ({error.strerror})")
    names = MARK.findall(text)
    if not names:
        fail("--table", "a file with marks such as <!-- begin bench-conv -->", str(document))
    for name in names:
        check_choice(f"mark in {document}", name, TABLES)
    write_atomic(document, fill(text, {f"bench-{name}": TABLES[name](rows) for name in names}, str(document)))


def conv_table(rows: Sequence[Measured]) -> str:
    """The convolution alone."""
    return _table(sorted(conv_rows(rows), key=lambda row: (row.gpu, row.nodes or 0)))


def models_table(rows: Sequence[Measured]) -> str:
    """Whole models beside published figures; those have no commit."""
    both = [*model_rows(rows), *published_models()]
    return _table(sorted(both, key=lambda row: (row.nodes or 0, "inference" in row.variant)))


def growth_table(rows: Sequence[Measured]) -> str:
    """Whole models at constant degree, and the slopes."""
    slopes = [row for row in rows if row.workload.startswith("growth, ")]
    lines = "".join(f"- {row.workload}, {row.variant}: {row.note} ({row.commit}, {row.date}).\n" for row in slopes)
    return _table(sparse_rows(rows)) + (f"\n{lines}" if lines else "")


def spectra_table(rows: Sequence[Measured]) -> str:
    """Eigenpairs of large graphs."""
    return _table([row for row in rows if row.benchmark == "spectra_large"], workload=True)


def training_table(rows: Sequence[Measured]) -> str:
    """Training steps and preparation of molecules."""
    kinds = ("training", "training_gpu", "spectra_small")
    return _table([row for row in rows if row.benchmark in kinds], workload=True)


def _table(rows: Sequence[Measured], workload: bool = False) -> str:
    if not rows:
        return "Not measured yet.\n"
    lines = ["| workload | variant | p20 ms | p50 ms | p80 ms | peak MB | on | commit, date |", "|" + 8 * "---|"]
    for row in rows:
        times = [_time(value) for value in (row.p20, row.p50, row.p80)]
        if row.p50 is None:
            times[1] = row.note.partition(";")[0]
        peak = "" if row.peak_mb is None else f"{row.peak_mb:,.0f}"
        origin = f"{row.commit}, {row.date}" if row.commit else "published"
        name = row.workload if workload or row.nodes is None else f"{row.nodes:,} nodes"
        name = row.workload if ", " in row.workload or "one graph" in row.workload else name
        lines.append(f"| {name} | {row.variant} | {' | '.join(times)} | {peak} | {row.device} | {origin} |")
    return "\n".join(lines) + "\n"


def _time(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:,.0f}"


TABLES: dict[str, Callable[[Sequence[Measured]], str]] = {
    "conv": conv_table,
    "models": models_table,
    "growth": growth_table,
    "spectra": spectra_table,
    "training": training_table,
}
