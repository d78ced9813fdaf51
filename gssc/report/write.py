"""Run folders in, four files out."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gssc.checks import check_installed, fail
from gssc.files import write_files
from gssc.report.page import make_page
from gssc.report.provenance import results_markdown
from gssc.report.render import render
from gssc.report.runs import read_runs
from gssc.report.tables import PAPER, Comparison, compare, to_csv
from gssc.report.variants import group_variants, read_recorded


@dataclass(frozen=True)
class Report:
    """What was written, for those who want to go on: tables by recipe, notes, and the files."""

    tables: dict[str, Comparison]
    notes: tuple[str, ...]
    files: tuple[Path, ...]


def write_report(runs: Iterable[str | Path], folder: str | Path, recorded: str | Path | None = None) -> Report:
    """Write ``report.md``, ``report.csv``, ``report.tex`` and ``report.html`` about run folders into a folder.

    Args:
        runs: Outputs of ``gssc train``, seed folders, or folders of several outputs.
        folder: Made if missing; files of an earlier report are replaced when all of the new ones are complete.
        recorded: Results that were kept (`read_recorded`), to put beside the runs.
    """
    check_installed("gssc report", "matplotlib", "plot")
    folder = Path(folder)
    if recorded is not None and not Path(recorded).is_dir():
        fail("recorded", "an existing folder", str(recorded))
    seeds, damages = read_runs(map(Path, runs))
    variants = group_variants(seeds)
    earlier = read_recorded(Path(recorded)) if recorded is not None else []
    tables = {recipe: compare(mine, earlier) for recipe, mine in variants.items()}
    comparisons = list(tables.values())
    origins = results_markdown([variant for mine in variants.values() for variant in mine])
    missing = [
        f"{recorded}: no recorded result of {name}"
        for name, table in tables.items()
        if recorded is not None and not any(one.recipe == table.variant.recipe for one in earlier)
    ]
    page, notes = make_page(variants, tables, (*damages, *missing))
    contents = {
        "report.md": render("report.md", tables=comparisons, paper=PAPER, origins=origins, notes=notes),
        "report.csv": to_csv(comparisons),
        "report.tex": render("report.tex", tables=comparisons),
        "report.html": page,
    }
    write_files(folder, {name: text.encode() for name, text in contents.items()})
    return Report(tables, tuple(notes), tuple(folder / name for name in contents))
