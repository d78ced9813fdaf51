"""``gssc sweep``."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gssc.checks import fail
from gssc.cli import options
from gssc.cli.common import deadline, find_start, open_for, pick_device
from gssc.config import DataConfig, Precision
from gssc.datasets import GraphDataset
from gssc.recipes import find_recipe
from gssc.tasks import spread_text
from gssc.train.display import plain_console
from gssc.train.processes import RunSettings
from gssc.train.seeds import parse_seeds, seed_folders, train_seeds, write_aggregate
from gssc.train.step import NonFiniteLossError
from gssc.train.sweep import first_overrides, parse_axis, run_sweep


def sweep(
    recipe: options.Recipe,
    axes: Annotated[
        list[str], typer.Argument(help="What varies, section.key=a,b,c or section.key=low..high (log:low..high).")
    ],
    fixed: Annotated[
        list[str] | None, typer.Option("--set", help="A change to all variants, e.g. --set train.epochs=20.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Let Optuna choose this many variants; the default is the whole grid.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; the default is runs/RECIPE-sweep.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of every variant: 0, 0-4 or 0,2,5.")] = "0",
    data_root: options.Root = Path("data"),
    pack: options.Pack = None,
    device: options.Device = "auto",
    time_limit: options.TimeLimit = None,
    cache: options.Cache = None,
) -> None:
    """Train variants of a recipe and rank them by validation score.

    The same command again goes on with a sweep that was stopped: finished runs are read, an unfinished one continues
    from its checkpoint. A variant that diverges has no score. OUT/sweep.json lists what was tried.

    For example:

        gssc sweep zinc-12k model.glob=gssc,none,attention --set train.epochs=100 --seeds 0-1
        gssc sweep cycles-3 optim.lr=log:1e-4..1e-2 model.dropout_global=0.0..0.5 --trials 20
    """
    base = find_recipe(recipe).override(fixed or [])
    parsed = [parse_axis(text, base) for text in axes]
    numbers = parse_seeds(seeds)
    folder = out or Path("runs") / f"{base.name}-sweep"
    place, until = pick_device(device), deadline(time_limit)
    settings = RunSettings(place, cache or True, resume=True, deadline=until, quiet=True, find_start=find_start)
    console = plain_console()
    for axis in parsed:
        if pack is not None and axis.key.startswith("data."):
            fail("--pack", "no axis of section data (a pack holds one dataset)", axis.key)

    @lru_cache(maxsize=1)  # most variants share a dataset; more than one may not fit in memory
    def opened(data: DataConfig, precision: Precision) -> GraphDataset:
        variant = replace(base, data=data, train=replace(base.train, precision=precision))
        return open_for(variant, data_root, pack, quiet=False)

    # No axis changes the task. The base itself is perhaps no variant.
    first = base.override(first_overrides(parsed))
    task = opened(first.data, first.train.precision).task

    def trial(overrides: list[str], place: Path) -> dict[str, Any] | None:
        variant = base.override(overrides)
        dataset = opened(variant.data, variant.train.precision)
        try:
            results = train_seeds(variant, dataset, seed_folders(place, numbers), settings)
        except NonFiniteLossError as error:
            console.print(f"left out: {error}")
            nothing = {"mean": None, "std": 0.0, "values": [None]}
            return {"validation": nothing, "test": nothing, "diverged": str(error)}
        return write_aggregate(place, results)

    results = run_sweep(parsed, trials, numbers[0], folder, task.higher_is_better, trial, console.print)
    if not results:
        return
    scored = [result for result in results if result["validation"]["mean"] is not None]
    variants = f"{len(scored)} variant{'s' * (len(scored) != 1)}"
    headings = ("variant", "validation", "test", "parameters", "seconds")
    table = Table(*headings, title=f"{base.name}: {variants} by validation {task.metric}")
    sign = -1.0 if task.higher_is_better else 1.0
    for result in sorted(scored, key=lambda result: sign * result["validation"]["mean"]):
        scores = [spread_text(result[part]) for part in ("validation", "test")]
        size, seconds = f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"
        table.add_row(" ".join(result["overrides"]), *scores, size, seconds)
    console.print(table)
    for result in results:
        if "diverged" in result:
            console.print(f"no score: {' '.join(result['overrides'])} ({result['diverged']})")
