"""``gssc train`` and ``gssc sweep``: a recipe with one or more seeds, or many variants of it."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from gssc.checks import fail
from gssc.cli import common
from gssc.config import DataConfig, Precision, Recipe
from gssc.recipes import find_recipe, large_graphs, own_recipe

if TYPE_CHECKING:
    from gssc.datasets import GraphDataset
    from gssc.shards import ShardedDataset


def train(
    recipe: common.MaybeRecipeName = None,
    overrides: common.Overrides = None,
    data_root: common.Root = Path("data"),
    out: Annotated[Path | None, typer.Option(help="Folder of the run; the default is runs/RECIPE.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds to train: 0, 0-4 or 0,2,5.")] = "0",
    splits: Annotated[
        str | None,
        typer.Option(help="Splits of masks [N, S] to train, as of --seeds; the first is the default."),
    ] = None,
    device: common.Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoints in OUT, or start.")] = False,
    finish: Annotated[
        bool, typer.Option("--finish", help="End the runs in OUT where they stand, and score what they selected.")
    ] = False,
    time_limit: common.TimeLimit = None,
    pack: common.Pack = None,
    data: common.Data = None,
    csv: common.Csv = None,
    smiles_column: common.SmilesColumn = None,
    target_column: common.TargetColumn = None,
    split: common.OwnSplit = None,
    skip_invalid: common.SkipInvalid = False,
    shards: Annotated[Path | None, typer.Option(help="A folder that `gssc partition` wrote: one graph.")] = None,
    cache: common.Cache = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="How many seeds to train at once: in processes, or together on one GPU.")
    ] = 1,
    rank_timeout: Annotated[str, typer.Option(help="How long processes of torchrun wait for each other.")] = "10m",
    threads: common.Threads = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show only the result.")] = False,
) -> None:
    """Train a recipe, or a model for your own data, and score it on the test set.

    Each seed writes OUT/seed-N with config.yaml, environment.json, metrics.jsonl, the checkpoints and, at the end,
    summary.json, model.safetensors (the weights with the best validation score) and predictions.safetensors.
    OUT/summary.json has mean and standard deviation over the seeds. After a crash, the same command with --resume goes
    on where the last checkpoint was written; with --finish it ends there instead, and the summary says after how many
    epochs.

    For example:

        gssc train zinc-12k --seeds 0-4 --jobs 5
        gssc train zinc-12k model.glob=none train.epochs=100 --out runs/no-global
        gssc train --data my_graphs.pt train.epochs=50
        gssc train --csv molecules.csv --target-column logP --split scaffold
        torchrun --nproc-per-node 2 -m gssc train zinc-12k
        torchrun --nproc-per-node 4 -m gssc train --shards shards/
    """
    from gssc.pretrained.find import find_start
    from gssc.tasks import spread_text
    from gssc.train.display import plain_console
    from gssc.train.open_data import open_for, suited
    from gssc.train.processes import RunSettings, joined
    from gssc.train.seeds import parse_seeds, seed_folders, train_seeds, write_aggregate

    sharded, until = None, common.deadline(time_limit)
    common.take_threads(threads)
    if shards is not None:
        if any((data, csv, pack, splits, smiles_column, target_column, split, skip_invalid)):
            fail("--shards", "no other data with it (shards hold features, targets and splits)", "some")
        sharded, settings = _of_shards(shards, recipe, overrides or [])
    else:
        settings = _recipe(recipe, overrides or [], data, csv, smiles_column, target_column, split, skip_invalid)
    runs = _of_splits(settings, splits, parse_seeds(seeds))
    of_variant = recipe is not None and recipe.startswith(f"{settings.name}:")
    folder = out or Path("runs") / (recipe.replace(":", "-") if recipe and of_variant else settings.name)
    place = common.pick_device(device)
    with joined(place.type, common.parse_duration(rank_timeout, "--rank-timeout")) as processes:
        if processes.world > 1 and place.type == "cuda":
            place = type(place)("cuda", processes.local_rank)
        quiet = quiet or not processes.first
        goes_on = resume or finish
        where = RunSettings(
            place, cache or True, goes_on, finish, until, quiet, threads, processes=processes, find_start=find_start
        )
        results: dict[int, dict[str, Any] | None] = {}
        for settings, numbers in runs:
            dataset = sharded or open_for(settings, data_root, pack, quiet)
            if sharded is None and (recipe is None or "=" in recipe):
                asked = [*(overrides or ()), recipe or ""]
                settings = suited(settings, dataset, asked, plain_console(quiet).print)
            results |= train_seeds(settings, dataset, seed_folders(folder, numbers), where, jobs)
            if None in results.values():
                break
        if not processes.first:
            return
    wanted = sum(len(numbers) for _, numbers in runs)
    total = write_aggregate(folder, results) if len(results) == wanted else None
    if total is None:
        if quiet:  # else the runs have said it
            done = sum(result is not None for result in results.values())
            plain_console().print(f"stopped, {done} of {wanted} seeds done; --resume goes on from there")
        return
    count = f"{wanted} seed{'s' * (wanted > 1)}"
    for part in ("validation", "test"):
        plain_console().print(f"{settings.name}: {part} {total['metric']} {spread_text(total[part])} ({count})")
    plain_console().print(f"written to {folder}")


def _of_shards(folder: Path, name: str | None, overrides: list[str]) -> "tuple[ShardedDataset, Recipe]":
    """The dataset in a folder of shards, and the recipe to train on it; as for `_recipe`."""
    from gssc.shards import open_shards
    from gssc.train.sharded import sharded_recipe

    if name is not None and "=" in name:
        overrides, name = [name, *overrides], None
    dataset = open_shards(folder)
    return dataset, sharded_recipe(dataset, None if name is None else find_recipe(name), overrides)


def _of_splits(recipe: Recipe, splits: str | None, seeds: list[int]) -> list[tuple[Recipe, list[int]]]:
    """A recipe for every split, with its seeds: of S splits, split s has s for seed 0, s + S for seed 1, and so on."""
    from gssc.datasets.own import count_splits
    from gssc.train.seeds import parse_seeds

    if splits is None:
        return [(recipe, seeds)]
    file, known = recipe.data.file, large_graphs().get(recipe.data.dataset)
    if known is None and (file is None or file.endswith(".csv")):
        fail("--splits", "--data FILE with it", "a recipe's own data" if file is None else file)
    numbers, count = parse_seeds(splits, "splits"), known.splits if known else count_splits(Path(file or ""))
    if max(numbers) >= count:
        fail("--splits", f"numbers below {count}, the splits that the masks hold", splits)
    return [(recipe.override([f"data.mask={number}"]), [count * seed + number for seed in seeds]) for number in numbers]


def _recipe(
    name: str | None,
    overrides: list[str],
    data: Path | None,
    csv: Path | None,
    smiles_column: str | None,
    target_column: str | None,
    split: str | None,
    skip_invalid: bool,
) -> Recipe:
    """The recipe asked for, or one for own data; the first override may stand where the recipe's name would."""
    if name is not None and "=" in name:
        overrides, name = [name, *overrides], None
    if data is not None and csv is not None:
        fail("--data", "one of --data and --csv", "both")
    if csv is not None and csv.suffix.lower() != ".csv":
        fail("--csv", "a .csv file (--data FILE takes PyG graphs)", csv)
    if data is not None and data.suffix.lower() in (".csv", ".smi"):
        fail("--data", "a .pt file of PyG graphs (--csv FILE takes a table of molecules)", data)
    of_tables = {"--smiles-column": smiles_column, "--target-column": target_column, "--skip-invalid": skip_invalid}
    for option, value in of_tables.items():
        if csv is None and value not in (None, False):
            fail(option, "--csv FILE with it", "a recipe alone" if data is None else f"--data {data}")
    file = data or csv
    if file is None:
        if name is None:
            fail("recipe", "the name of a recipe, --data FILE or --csv FILE", "none of them")
        return find_recipe(name).override(overrides)
    if csv is not None and target_column is None:
        fail("--target-column", "the column of the .csv file to predict", "none")
    base = None if name is None else find_recipe(name)
    columns = {"smiles_column": smiles_column, "target_columns": target_column}
    return own_recipe(file, base, split=split, skip_invalid=skip_invalid, **columns).override(overrides)


def sweep(
    recipe: common.MaybeRecipeName = None,
    axes: Annotated[
        list[str] | None,
        typer.Argument(help="What varies, section.key=a,b,c or section.key=low..high (log:low..high)."),
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option("--set", help="A change to all variants, e.g. --set train.epochs=20.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="Let Optuna choose this many variants; the default is the whole grid.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; the default is runs/RECIPE-sweep.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of every variant: 0, 0-4 or 0,2,5.")] = "0",
    data_root: common.Root = Path("data"),
    pack: common.Pack = None,
    data: common.Data = None,
    csv: common.Csv = None,
    smiles_column: common.SmilesColumn = None,
    target_column: common.TargetColumn = None,
    split: common.OwnSplit = None,
    skip_invalid: common.SkipInvalid = False,
    device: common.Device = "auto",
    time_limit: common.TimeLimit = None,
    cache: common.Cache = None,
    threads: common.Threads = None,
) -> None:
    """Train variants of a recipe, or of the model for your own data, and rank them by validation score.

    The same command again goes on with a sweep that was stopped: finished runs are read, an unfinished one continues
    from its checkpoint. A variant that diverges has no score. OUT/sweep.json lists what was tried.

    For example:

        gssc sweep zinc-12k model.glob=gssc,none,attention --set train.epochs=100 --seeds 0-1
        gssc sweep cycles-3 optim.lr=log:1e-4..1e-2 model.dropout_global=0.0..0.5 --trials 20
        gssc sweep --data my_graphs.pt model.local=gatedgcn,gine spectrum.k=16,32
    """
    from gssc.pretrained.find import find_start
    from gssc.tasks import spread_text
    from gssc.train.display import plain_console
    from gssc.train.open_data import open_for, suited
    from gssc.train.processes import RunSettings
    from gssc.train.seeds import parse_seeds, seed_folders, train_seeds, write_aggregate
    from gssc.train.step import NonFiniteLossError
    from gssc.train.sweep import parse_axis, run_sweep

    own = recipe is None or "=" in recipe
    if recipe is not None and own:  # the first axis stands where the recipe's name would
        axes, recipe = [recipe, *(axes or [])], None
    if not axes:
        fail("axes", "one or more keys that vary, section.key=a,b,c", "none")
    base = _recipe(recipe, fixed or [], data, csv, smiles_column, target_column, split, skip_invalid)
    parsed = [parse_axis(text, base) for text in axes]
    numbers = parse_seeds(seeds)
    folder = out or Path("runs") / f"{base.name}-sweep"
    place, until = common.pick_device(device), common.deadline(time_limit)
    common.take_threads(threads)
    settings = RunSettings(
        place, cache or True, resume=True, deadline=until, quiet=True, threads=threads, find_start=find_start
    )
    console = plain_console()
    for axis in parsed:
        if pack is not None and axis.key.startswith("data."):
            fail("--pack", "no axis of section data (a pack holds one dataset)", axis.key)

    @lru_cache(maxsize=1)  # most variants share a dataset; more than one may not fit in memory
    def opened(data: DataConfig, precision: Precision) -> "GraphDataset":
        variant = replace(base, data=data, train=replace(base.train, precision=precision))
        return open_for(variant, data_root, pack, quiet=False)

    def trial(overrides: list[str], place: Path) -> dict[str, Any] | None:
        variant = base.override(overrides)
        dataset = opened(variant.data, variant.train.precision)
        if own:
            variant = suited(variant, dataset, [*(fixed or []), *overrides], console.print)
        try:
            results = train_seeds(variant, dataset, seed_folders(place, numbers), settings)
        except NonFiniteLossError as error:
            console.print(f"left out: {error}")
            nothing = {"mean": None, "std": 0.0, "values": [None]}
            return {"validation": nothing, "test": nothing, "diverged": str(error)}
        return write_aggregate(place, results)

    results = run_sweep(parsed, trials, numbers[0], folder, trial, console.print)
    scored = [result for result in results if result["validation"]["mean"] is not None]
    if scored:
        # No axis changes the task.
        metric, higher_is_better = scored[0]["metric"], scored[0]["higher_is_better"]
        title = f"{base.name}: {len(scored)} variant{'s' * (len(scored) != 1)} by validation {metric}"
        table = Table("variant", "validation", "test", "parameters", "seconds", title=title)
        for result in sorted(scored, key=lambda one: one["validation"]["mean"], reverse=higher_is_better):
            scores = [spread_text(result[part]) for part in ("validation", "test")]
            size, seconds = f"{result['parameters']:,}", f"{result['train_seconds']:.0f}"
            table.add_row(" ".join(result["overrides"]), *scores, size, seconds)
        console.print(table)
    for result in results:
        if "diverged" in result:
            console.print(f"no score: {' '.join(result['overrides'])} ({result['diverged']})")
