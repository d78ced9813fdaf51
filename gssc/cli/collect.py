"""``gssc collect``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def collect(
    runs: Annotated[list[Path], typer.Argument(help="Outputs of `gssc train`: finished seeds of one setting.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of all results.")] = Path("results"),
    name: Annotated[
        str, typer.Option("--as", help="`main`, or `ablation-…` for what belongs on the page of ablations.")
    ] = "main",
    remark: Annotated[str, typer.Option(help="What a reader must know of these runs; a footnote of the number.")] = "",
) -> None:
    """Keep the small part of finished runs, as the source of the pages that `gssc results` writes.

    Below OUTPUT/RECIPE/NAME each seed keeps its scores, settings, environment and epochs (to five digits, compressed),
    and run.json has command, commit, hardware, date, schedule and time. What was there under this name is replaced.

        gssc collect runs/zinc-12k
        gssc collect runs/zinc-attention --as ablation-attention
    """
    from gssc.report.collected import collect as keep

    console = Console(highlight=False, soft_wrap=True)
    for folder in keep(runs, output, name, remark):
        console.print(f"kept in {folder}", markup=False)
