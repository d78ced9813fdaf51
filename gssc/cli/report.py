"""``gssc report``."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gssc.cli.options import plain_console
from gssc.report import write_report

STYLES = {"better": "green", "worse": "red"}


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Outputs of `gssc train`, seed folders, or folders of several outputs.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the report into.")] = Path("report"),
    recorded: Annotated[
        Path | None, typer.Option(help="Folder of results that were kept, to put beside the runs.")
    ] = None,
) -> None:
    """Put runs beside the published numbers: tables in Markdown, CSV and LaTeX, and one HTML page with plots.

    Seeds are averaged; runs that change the shipped recipe are variants, named by what they change. Unfinished runs are
    shown as such. With --recorded, what was kept of earlier runs of the same recipes stands beside them. The page needs
    no network and no other file.
    """
    written = write_report(runs, output, recorded)
    table = Table(box=box.SIMPLE)
    for heading in ("recipe", "variant", "seeds", "test", "published", "difference"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "recipe")
    for recipe, one in written.tables.items():
        published = next((row.text for row in one.rows if row.own), "")
        for row in one.rows:
            if row.ours:
                name = recipe if row is one.rows[0] else ""
                cells = (name, row.model, str(row.seeds or ""), row.text, published, row.difference)
                table.add_row(*map(escape, cells), style=STYLES.get(row.verdict))
    Console().print(table)
    for note in written.notes:
        plain_console().print(f"note: {note}", style="yellow")
    plain_console().print(f"written: {', '.join(map(str, written.files))}")
