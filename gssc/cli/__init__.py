"""The command ``gssc``: thin files of sub-commands, which call the library."""

import os
import re
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from gssc.checks import shorten
from gssc.cli import data, shards, tables, train, trained
from gssc.distribution import NAME, VERSION, warn_of_namesake

app = typer.Typer(
    help="Graph State Space Convolution for PyTorch Geometric.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
COMMANDS = (
    tables.recipes, tables.models, data.prepare, train.train, trained.evaluate, trained.predict, trained.explain,
    tables.report, trained.publish, data.pack, train.sweep, shards.partition, shards.plan,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)


def _version(asked: bool) -> None:
    if asked:
        print(f"{NAME} {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show it, and exit.")
    ] = False,
) -> None:
    """Options of the command itself."""


@app.command(hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench() -> None:
    """No longer here."""
    raise ValueError("gssc bench: benchmarks live in benchmarks/ of the repository (there: python -m benchmarks)")


def main() -> None:
    """Run the command; errors meant for people are one line, without a traceback."""
    warn_of_namesake()  # whose `import gssc` may be another package's
    try:
        app()
    except SystemExit as end:
        raise SystemExit(end.code or _status()) from None
    except Exception as error:
        line = _for_people(error)
        if line is None:
            raise
        _say(line)
        processes = sys.modules.get("gssc.train.processes")
        if processes is not None and isinstance(error, processes.LostProcessError):
            os._exit(2)  # whose threads would be waited for
        raise SystemExit(2) from None


def _status() -> int:
    """What a signal that was heard makes of the end; 0 where nothing was trained."""
    stopping = sys.modules.get("gssc.train.stopping")
    return 0 if stopping is None else int(stopping.status())


def _for_people(error: Exception) -> str | None:
    """What an error says where it is meant for people; None where it is a mistake of ours."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, OSError):
        # What is written is written beside its place first; people know the place.
        place = re.sub(r"/\.([^/]+)\.[0-9a-f]{32}\.tmp\b", r"/\1", str(error.filename or ""))
        return f"{place}: {error.strerror}" if place and error.strerror else str(error) or type(error).__name__
    from torch import OutOfMemoryError

    from gssc.datasets import DatasetError
    from gssc.spectra import SpectrumError
    from gssc.train.step import NonFiniteLossError

    if isinstance(error, DatasetError | SpectrumError | NonFiniteLossError):
        return str(error)
    # A GPU's allocator has an error of its own, a CPU's none.
    if isinstance(error, MemoryError | OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
        reason = str(error).splitlines()[0] if str(error) else "nothing more was said"
        return f"memory: expected enough for this model and batch, got too little ({reason})"
    return None


def _say(error: str) -> None:
    # As text: brackets in a path or a shape are no markup.
    line = Text.assemble(("error:", "red"), " ", shorten(error))
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)
