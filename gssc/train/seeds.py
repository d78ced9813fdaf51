"""Several seeds of one recipe, and what they amount to."""

import multiprocessing
import os
import statistics
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.files import write_json
from gssc.train import teachers
from gssc.train.display import Display
from gssc.train.evaluate import default_dtype
from gssc.train.run import train, train_side_by_side
from gssc.train.run_folder import position_of
from gssc.train.settings import RunSettings
from gssc.train.trainers import choose_way

MOST_SEEDS = 10_000


def parse_seeds(text: str) -> list[int]:
    """``"0-4"``, ``"3"`` or ``"0,2,5-7"`` as numbers."""
    seeds: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            fail("seeds", "numbers and ranges such as 0-4 or 0,2,5", repr(text))
        if dash and int(last) - int(first) >= MOST_SEEDS:
            fail("seeds", f"a range of at most {MOST_SEEDS:,} seeds", repr(text))
        seeds += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(seeds))


def train_seeds(
    recipe: Recipe, dataset: GraphDataset, seeds: list[int], folders: list[Path], settings: RunSettings, jobs: int = 1
) -> list[dict[str, Any] | None]:
    """`train` for every seed, one after another or ``jobs`` at a time; ends at the first None, where time ran out.

    Several at a time take their steps in the same launches where the kernels for small graphs take the recipe; else
    they are threads with a stream each where one GPU replays captured steps, else processes. Each is the same run that
    it would be alone, as long as it has as many threads.
    """
    if jobs > 1 and recipe.train.teachers and not _train_teachers(recipe, dataset, seeds, folders, settings, jobs):
        return [None] * len(seeds)
    if jobs == 1 or len(seeds) == 1:
        return _in_turn(recipe, dataset, [[seed] for seed in seeds], [[folder] for folder in folders], settings)
    if settings.processes.world > 1:
        fail("jobs", "1 where several processes share each batch", jobs)
    # Displays that move would overwrite each other.
    settings = replace(settings, live=False)
    way, _ = choose_way(recipe, dataset, settings.device, settings.processes)
    if way == "kernels":
        together = 1 if recipe.train.teachers else jobs  # one set of targets for all
        groups = [slice(start, start + together) for start in range(0, len(seeds), together)]
        return _in_turn(recipe, dataset, [seeds[g] for g in groups], [folders[g] for g in groups], settings)
    threads = way == "replayed"
    pool: Executor = ThreadPoolExecutor(jobs) if threads else _processes(jobs)
    with default_dtype(recipe.train.precision), pool:
        run = _on_own_stream if threads else train
        futures = [
            pool.submit(run, recipe, dataset, seed, folder, settings)
            for seed, folder in zip(seeds, folders, strict=True)
        ]
    return [_result(seed, future) for seed, future in zip(seeds, futures, strict=True)]


def _train_teachers(
    recipe: Recipe, dataset: GraphDataset, seeds: list[int], folders: list[Path], settings: RunSettings, jobs: int
) -> bool:
    """The teachers of all seeds, ``jobs`` at a time: there are more of them than students. False where time ran out."""
    runs = [run for place in zip(seeds, folders, strict=True) for run in teachers.missing(recipe, *place)]
    if not runs:
        return True
    teachers.announce(recipe, runs, settings)
    alone, (numbers, places) = teachers.without_teachers(recipe), zip(*runs, strict=True)
    results = train_seeds(alone, dataset, list(numbers), list(places), teachers.settings_of(settings), jobs)
    return len(results) == len(runs) and None not in results


def _in_turn(
    recipe: Recipe, dataset: GraphDataset, seeds: list[list[int]], folders: list[list[Path]], settings: RunSettings
) -> list[dict[str, Any] | None]:
    """Groups of runs one after another, up to the first that runs out of time."""
    results: list[dict[str, Any] | None] = []
    for group, places in zip(seeds, folders, strict=True):
        open_folders = [folder for folder in places if not (folder / "summary.json").exists()]
        if settings.resume and len(group) > 1 and len({position_of(folder) for folder in open_folders}) > 1:
            show = Display(f"{recipe.name} seeds {group[0]} to {group[-1]}", 0, "", settings.quiet)
            show.say("trained one after another, because their checkpoints are of different steps")
            alone = [[seed] for seed in group], [[folder] for folder in places]
            results += _in_turn(recipe, dataset, *alone, settings)
        else:
            results += train_side_by_side(recipe, dataset, group, places, settings)
        if None in results:
            break
    return results


def _processes(jobs: int) -> Executor:
    """New processes that divide the cores, since neither CUDA nor threads survive a fork."""
    threads = max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // jobs))
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (threads,))


def _on_own_stream(
    recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings
) -> dict[str, Any] | None:
    with torch.cuda.stream(torch.cuda.Stream(settings.device)):
        return train(recipe, dataset, seed, folder, settings)


def _result(seed: int, future: Future[dict[str, Any] | None]) -> dict[str, Any] | None:
    try:
        return future.result()
    except BrokenProcessPool:
        fail("--jobs", f"a process for seed {seed} that lives", "one that was killed (is there enough memory?)")
    except (ValueError, RuntimeError) as error:
        raise type(error)(f"seed {seed}: {error}") from None


def aggregate(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation of the scores over seeds."""
    first = summaries[0]
    seconds = sum(summary["train_seconds"] for summary in summaries)
    return {
        **{key: first[key] for key in ("recipe", "dataset", "metric", "higher_is_better", "parameters", "epochs_run")},
        "seeds": [summary["seed"] for summary in summaries],
        **{key: _spread([summary[key] for summary in summaries]) for key in ("validation", "test")},
        "train_seconds": round(seconds, 3),
    }


def write_aggregate(out: Path, summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """`aggregate` into ``OUT/summary.json``."""
    total = aggregate(summaries)
    write_json(out / "summary.json", total)
    return total


def _spread(values: list[float | None]) -> dict[str, Any]:
    scores = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(scores) if scores else None,
        "std": statistics.stdev(scores) if len(scores) > 1 else 0.0,
        "values": values,
    }
