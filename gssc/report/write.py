"""Run folders in, four files out."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gssc.report.files import write_files
from gssc.report.page import make_page
from gssc.report.protocols import with_protocols
from gssc.report.results import results_markdown
from gssc.report.runs import read_runs
from gssc.report.svg import need_matplotlib
from gssc.report.tables import Comparison, compare, to_csv, to_latex, to_markdown
from gssc.report.variants import group_variants


@dataclass(frozen=True)
class Report:
    """What was written, for those who want to go on: tables by recipe, notes, and the files."""

    tables: dict[str, Comparison]
    notes: tuple[str, ...]
    files: tuple[Path, ...]


def write_report(runs: Iterable[Path], folder: Path) -> Report:
    """Write ``report.md``, ``report.csv``, ``report.tex`` and ``report.html`` about run folders into a folder.

    Args:
        runs: Outputs of ``gssc train``, seed folders, or folders of several outputs.
        folder: Made if missing; files of an earlier report are replaced when all of the new ones are complete.
    """
    need_matplotlib()
    found = read_runs(runs)
    variants = group_variants(found.seeds)
    tables = {recipe: with_protocols(compare(mine), mine) for recipe, mine in variants.items()}
    comparisons = list(tables.values())
    origins = results_markdown([variant for mine in variants.values() for variant in mine])
    page, notes = make_page(variants, tables, found.notes)
    markdown = to_markdown(comparisons) + f"\n## Where they come from\n\n{origins}"
    if notes:
        markdown += "\n## Not everything could be read\n\n" + "".join(f"- {note}\n" for note in notes)
    contents = {
        "report.md": markdown,
        "report.csv": to_csv(comparisons),
        "report.tex": to_latex(comparisons),
        "report.html": page,
    }
    write_files(folder, {name: text.encode() for name, text in contents.items()})
    return Report(tables, tuple(notes), tuple(folder / name for name in contents))
