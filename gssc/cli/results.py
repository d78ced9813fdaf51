"""``gssc results``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def results(
    folder: Annotated[Path, typer.Argument(help="What `gssc collect` keeps.")] = Path("results"),
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder of results.md, ablations.md and their pictures.")
    ] = Path("docs"),
    readme: Annotated[
        Path | None,
        typer.Option(help="A file in which a part called results is marked, for a short table."),
    ] = None,
) -> None:
    """Write the pages of results and ablations from the runs that `gssc collect` kept.

    Each number stands with its seeds, command, commit, hardware, time and date, beside every row of the paper's tables;
    recipes without a run say so. Only what stands between `<!-- begin … -->` and `<!-- end … -->` is written: text
    around it is yours and stays. Remarks on datasets come from FOLDER/notes.yaml.

        gssc results results -o docs --readme README.md
    """
    from gssc.report.documents import write_documents

    written = write_documents(folder, output, readme)
    Console(highlight=False, soft_wrap=True).print(f"written: {', '.join(map(str, written))}", markup=False)
