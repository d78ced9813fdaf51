"""Run folders in, four files out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gssc.checks import fail
from gssc.files import write_files
from gssc.report.page import make_page
from gssc.report.recorded import Recorded, read_recorded
from gssc.report.results import results_markdown
from gssc.report.runs import read_runs
from gssc.report.svg import need_matplotlib
from gssc.report.tables import Comparison, compare, our_row, to_csv, to_latex, to_markdown, with_protocols
from gssc.report.variants import Variant, group_variants


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
        recorded: Results that were kept (`gssc.report.recorded`), to put beside the runs.
    """
    need_matplotlib()
    folder = Path(folder)
    if recorded is not None and not Path(recorded).is_dir():
        fail("recorded", "an existing folder", str(recorded))
    read = read_runs(map(Path, runs))
    variants = group_variants(read.seeds)
    kept = read_recorded(Path(recorded)) if recorded is not None else []
    tables = {
        recipe: with_protocols(_with_recorded(compare(mine), mine, kept), mine) for recipe, mine in variants.items()
    }
    comparisons = list(tables.values())
    origins = results_markdown([variant for mine in variants.values() for variant in mine])
    missing = [
        f"{recorded}: no recorded result of {name}"
        for name, table in tables.items()
        if recorded is not None and not any(one.recipe == table.recipe for one in kept)
    ]
    page, notes = make_page(variants, tables, (*read.notes, *missing))
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


def _with_recorded(table: Comparison, variants: Sequence[Variant], kept: Sequence[Recorded]) -> Comparison:
    """The table with what was recorded of its recipe, on the same dataset, below our own rows.

    Of recorded ablations, those with the settings of a run that is here.
    """
    settings = {variant.overrides for variant in variants}
    mine = [one for one in kept if one.recipe == table.recipe and one.variant.dataset == table.dataset]
    rows = [
        replace(
            our_row(one.variant),
            model=f"recorded, {one.name}" + (f" ({one.schedule})" if one.schedule else ""),
            source=f"recorded: commit {one.said('commit')}, {one.said('hardware')}, {one.said('date')}",
        )
        for one in mine
        if not one.ablation or one.variant.overrides in settings
    ]
    new = [row for row in table.rows if row.ours]
    return replace(table, rows=(*new, *rows, *(row for row in table.rows if not row.ours)))
