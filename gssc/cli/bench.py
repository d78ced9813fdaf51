"""``gssc bench``."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from gssc.cli.options import DeviceOption


def bench(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(help="What to run (see --list); all that the device can, where none is named."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Say what there is, and run nothing.")] = False,
    device: DeviceOption = "auto",
    out: Annotated[Path, typer.Option(help="Results file to append to.")] = Path("benchmarks/results.csv"),
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Time of each measurement, where a workload lets it be chosen.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the results file into this folder; alone, nothing is run.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write tables between the marks in this Markdown file; alone, nothing is run.")
    ] = None,
) -> None:
    """Measure speed and memory, after checking that what is measured is right.

    Every workload compares its results first; where they are wrong it is not timed, and the command ends with code 1.
    Rows with percentiles, peak memory, hardware, versions, commit and date are appended to the results file. Ratios are
    taken within one run. What needs a GPU is skipped where there is none.

    For example:

        gssc bench --list
        gssc bench conv training --seconds 10
        gssc bench --plot docs/figures --table docs/benchmarks.md
    """
    from gssc.bench.plots import draw
    from gssc.bench.registry import find_workloads
    from gssc.bench.run import run_workloads
    from gssc.bench.tables import update_tables
    from gssc.cli.common import pick_device

    console = Console(highlight=False, soft_wrap=True)
    chosen = find_workloads(workloads or [])
    if show:
        listing = Table(box=box.SIMPLE, show_edge=False)
        for heading in ("workload", "runs on", "about", "measures"):
            listing.add_column(heading, no_wrap=heading != "measures")
        for one in chosen:
            place = {"gpu": "GPU", "cpu": "CPU", "any": "CPU or GPU"}[one.needs]
            listing.add_row(one.name, place, f"{one.minutes:g} min", one.measures)
        Console().print(listing)
        return
    failed = []
    if workloads or (plot is None and table is None):
        place = pick_device(device).type
        outcomes = run_workloads(chosen, place, out, seconds, lambda line: console.print(line, markup=False))
        failed = [outcome for outcome in outcomes if outcome.status == "failed"]
        done = [outcome.workload for outcome in outcomes if outcome.status == "done"]
        if done:
            console.print(f"{', '.join(done)}: appended to {out}", markup=False)
    for path in draw(out, plot) if plot is not None else []:
        console.print(f"written: {path}", markup=False)
    if table is not None:
        update_tables(out, table)
        console.print(f"written: {table}", markup=False)
    if failed:
        raise typer.Exit(1)
