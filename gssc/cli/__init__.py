"""The command ``gssc``: thin, one file per sub-command, each of which calls the library."""

import typer
from rich.console import Console

from gssc.cli.pack import pack
from gssc.cli.prepare import prepare
from gssc.cli.recipes import recipes

app = typer.Typer(
    help="Graph State Space Convolution for PyTorch Geometric.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (recipes, prepare, pack):
    app.command()(command)


@app.callback()
def _root() -> None:
    """Graph State Space Convolution for PyTorch Geometric."""


def main() -> None:
    """Run the command; errors meant for people are one line, without a traceback."""
    from gssc.datasets import DatasetError
    from gssc.spectra import SpectrumError

    try:
        app()
    except (ValueError, DatasetError, SpectrumError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None
