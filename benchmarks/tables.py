"""The results file as Markdown tables, written between marks of a document."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.launched import SIZES, edges_of
from benchmarks.plots import conv_rows, model_rows, of_study, sparse_rows, study_rows
from benchmarks.results import Measured, published_models, read_results, short_count
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
    return _table([row for row in rows if row.benchmark == "spectra_large" and not of_study(row)], workload=True)


def training_table(rows: Sequence[Measured]) -> str:
    """Training steps and preparation of molecules."""
    kinds = ("training", "training_gpu", "spectra_small")
    return _table([row for row in rows if row.benchmark in kinds], workload=True)


def launched_table(rows: Sequence[Measured]) -> str:
    """A loop of one's own beside PyG's GPSConv, training and inference."""
    kinds = ("training", "inference")
    headings = ["graphs", *(text for kind in kinds for text in (f"{kind}, gssc", "GPSConv", "ratio"))]
    sizes = _sizes(rows)
    lines = [[name, *(cell for kind in kinds for cell in _pair(rows, size, kind))] for size, name in sizes.items()]
    return _lines(headings, lines, _origin(row for row in rows if row.benchmark == "launched" and row.gpu))


def speed_table(rows: Sequence[Measured]) -> str:
    """The same in short, for the README: training in a loop of one's own, and with steps that are replayed."""
    sizes = _sizes(rows)
    replayed = {row.workload: row for row in rows if row.variant == "gssc, training, replayed" and row.gpu}
    shown = {size: name for size, name in sizes.items() if not size.isdecimal() or name in replayed}
    lines = [
        [name, *_pair(rows, size, "training"), _time(replayed[name].p50) if name in replayed else ""]
        for size, name in shown.items()
    ]
    launched = [row for row in rows if row.benchmark == "launched" and row.gpu]
    origin = (
        _origin(launched) + " Replayed: " + _origin(row for row in replayed.values() if row.workload in shown.values())
    )
    return _lines(["training step, ms", "yours, gssc", "yours, `GPSConv`", "ratio", "gssc, replayed"], lines, origin)


def cost_models_table(rows: Sequence[Measured]) -> str:
    """The cost study's models: a table for each kind of step, a line for each global part."""
    study = study_rows(rows)
    if not study:
        return "Not measured yet.\n"
    cells = {(row.workload, row.variant): row for row in study}
    measured = {row.workload.partition(", ")[0] for row in study}
    numbers = sorted((size for size in measured if size.isdecimal()), key=int)
    sizes = [*(size for size in SIZES if size in measured and not size.isdecimal()), *numbers]
    parts = list(dict.fromkeys(row.variant.partition(", ")[0] for row in study))
    tables = []
    for title, kind, how, memory in STUDIED:
        lines = []
        for part in parts:
            found = [cells.get((f"{size}, {kind}", f"{part}, {how}")) for size in sizes]
            if any(row is not None and row.p50 is not None for row in found):
                lines.append([part, *("" if row is None else _cost(row, memory) for row in found)])
        if lines:
            headings = [title, *(f"{int(size):,}" if size.isdecimal() else size for size in sizes)]
            tables.append(_lines(headings, lines, "").strip())
    picture = "![Training, inference, memory and preprocessing against nodes](figures/bench-cost.svg)"
    return "\n\n".join([*tables, picture, _origin(study)]) + "\n"


STUDIED = (
    ("training, launched, ms", "training", "launched", False),
    ("training, replayed, ms", "training", "replayed", False),
    ("inference, launched, ms", "inference", "launched", False),
    ("inference, replayed, ms", "inference", "replayed", False),
    ("training, peak memory, MB", "training", "launched", True),
)


def _cost(row: Measured, memory: bool) -> str:
    if row.p50 is None:
        return "out of memory" if row.note == "out of memory" else "not captured"
    return _time(row.peak_mb if memory else row.p50)


def cost_preprocessing_table(rows: Sequence[Measured]) -> str:
    """The cost study's preprocessing, in seconds: a line for each method and device."""
    study = [row for row in rows if row.benchmark == "spectra_large" and of_study(row)]
    sizes = sorted({row.nodes for row in study if row.nodes is not None})
    lines = []
    for device, method in dict.fromkeys((row.device, row.variant) for row in study):
        times = {row.nodes: row for row in study if (row.device, row.variant) == (device, method)}
        found = [times.get(size) for size in sizes]
        seconds = ["" if row is None else _time(row.p50 / 1e3) if row.p50 else row.note for row in found]
        lines.append([method, device, *(text.partition(":")[0] for text in seconds)])
    return _lines(["preprocessing, s", "on", *(f"{size:,}" for size in sizes)], lines, _origin(study))


def _origin(rows: Iterable[Measured]) -> str:
    """Devices, commits and dates."""
    groups = dict.fromkeys(f"{row.device}, commit {row.commit}, {row.date}" for row in rows)
    return f"{'; '.join(groups)}."


def _sizes(rows: Sequence[Measured]) -> dict[str, str]:
    """The workloads of `benchmarks.launched`, in its order, as people say them."""
    measured = {row.workload.partition(", ")[0] for row in rows if row.benchmark == "launched" and row.gpu}
    names = {"molecules": "32 molecules of 23 nodes", "480 nodes x 32": "32 graphs of 480 nodes"}
    names |= {
        size: f"{int(size):,} nodes, {short_count(edges_of(int(size)))} edges" for size in SIZES if size.isdecimal()
    }
    return {size: names[size] for size in SIZES if size in measured}


def _pair(rows: Sequence[Measured], size: str, kind: str) -> list[str]:
    """Milliseconds of ours and of GPSConv on a GPU, and their ratio."""
    times = {}
    for row in rows:
        if (row.benchmark, row.workload, row.gpu) == ("launched", f"{size}, {kind}", True):
            times[row.variant] = row
    ours, theirs = times["gssc"], times["GPSConv"]
    if ours.p50 is None or theirs.p50 is None or math.isnan(theirs.p50):
        return [_time(ours.p50), theirs.note, ""]
    return [_time(ours.p50), _time(theirs.p50), _time(theirs.p50 / ours.p50)]


def _lines(headings: Sequence[str], rows: Sequence[Sequence[str]], origin: str) -> str:
    if not rows:
        return "Not measured yet.\n"
    lines = [f"| {' | '.join(headings)} |", "|" + len(headings) * "---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + f"\n\n{origin}\n"


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
    "launched": launched_table,
    "speed": speed_table,
    "cost-models": cost_models_table,
    "cost-preprocessing": cost_preprocessing_table,
}
