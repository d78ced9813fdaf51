"""Several seeds of one recipe, and what they amount to."""

import multiprocessing
import os
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.files import write_json
from gssc.train import teachers
from gssc.train.display import plain_console
from gssc.train.evaluate import default_dtype
from gssc.train.processes import RunSettings
from gssc.train.run import Folders, Results, choose_way, train, train_side_by_side
from gssc.train.run_folder import position_of
from gssc.train.run_state import Summary
from gssc.train.stopping import asked, passing_on

MOST_SEEDS = 10_000


def parse_seeds(text: str, name: str = "seeds") -> list[int]:
    """``"0-4"``, ``"3"`` or ``"0,2,5-7"`` as numbers."""
    seeds: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            fail(name, "numbers and ranges such as 0-4 or 0,2,5", repr(text))
        if dash and int(last) - int(first) >= MOST_SEEDS:
            fail(name, f"a range of at most {MOST_SEEDS:,} {name}", repr(text))
        seeds += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(seeds))


def seed_folders(out: Path, seeds: Sequence[int]) -> dict[int, Path]:
    """Where the seeds of a recipe are trained, below OUT."""
    return {seed: out / f"seed-{seed}" for seed in seeds}


def train_seeds(
    recipe: Recipe, dataset: GraphDataset, folders: Folders, settings: RunSettings, jobs: int = 1
) -> Results:
    """`train` for every seed, one after another or ``jobs`` at a time; ends at the first None, where time ran out.

    Several at a time take their steps in the same launches where the kernels for small graphs take the recipe; else
    they are threads with a stream each where one GPU replays captured steps, else processes. Each is the same run that
    it would be alone, as long as it has as many threads.
    """
    if jobs > 1 and recipe.train.teachers:
        # Those of all seeds, so many at a time: there are more of them than students.
        alone, to_come, teaching = teachers.announce(recipe, folders, settings)
        taught = train_seeds(alone, dataset, to_come, teaching, jobs)
        if len(taught) < len(to_come) or None in taught.values():
            return dict.fromkeys(folders)
    if jobs == 1 or len(folders) <= 1:
        return _in_turn(recipe, dataset, folders, settings)
    if settings.processes.world > 1:
        fail("jobs", "1 where several processes share each batch", jobs)
    # Displays that move would overwrite each other.
    settings = replace(settings, live=False)
    way, _ = choose_way(recipe, dataset, settings)
    if way == "kernels":
        # Those that have teachers have targets of their own.
        return _in_turn(recipe, dataset, folders, settings, together=1 if recipe.train.teachers else jobs)
    with ExitStack() as stack:
        stack.enter_context(default_dtype(recipe.train.precision))
        stack.enter_context(passing_on())
        run: Callable[..., Summary] = _on_own_stream
        if way != "replayed":
            # New processes divide the cores; neither CUDA nor threads survive a fork.
            cores = settings.threads or max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // jobs))
            spawn, idle = multiprocessing.get_context("spawn"), SimpleQueue[ProcessPoolExecutor]()
            for _ in range(jobs):
                idle.put(stack.enter_context(ProcessPoolExecutor(1, spawn, torch.set_num_threads, (cores,))))
            run = partial(_in_process, idle)
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        futures = {seed: pool.submit(run, recipe, dataset, seed, folders[seed], settings) for seed in folders}
    return {seed: _result(seed, future) for seed, future in futures.items()}


def _in_turn(
    recipe: Recipe, dataset: GraphDataset, folders: Folders, settings: RunSettings, together: int = 1
) -> Results:
    """Groups of so many runs one after another, up to the first that runs out of time."""
    results: Results = {}
    for start in range(0, len(folders), together):
        group = dict(list(folders.items())[start : start + together])
        unfinished = [folder for folder in group.values() if not (folder / "summary.json").exists()]
        if settings.resume and together > 1 and len({position_of(folder) for folder in unfinished}) > 1:
            why = "trained one after another, because their checkpoints are of different steps"
            plain_console(settings.quiet).print(f"{recipe.name} seeds {min(group)} to {max(group)}: {why}")
            results |= _in_turn(recipe, dataset, group, settings)
        else:
            results |= train_side_by_side(recipe, dataset, group, settings)
        if None in results.values():
            break
    return results


def _on_own_stream(recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings) -> Summary:
    with torch.cuda.stream(torch.cuda.Stream(settings.device)):
        return train(recipe, dataset, seed, folder, settings)


def _in_process(idle: SimpleQueue[ProcessPoolExecutor], *run: Any) -> Summary:
    """`train` in one of the processes that are ``idle``; None where these were asked to end."""
    process = idle.get()
    try:
        return None if asked() else process.submit(train, *run).result()
    except BrokenProcessPool:
        if asked():  # before it could listen
            return None
        raise
    finally:
        idle.put(process)


def _result(seed: int, future: Future[Summary]) -> Summary:
    try:
        return future.result()
    except BrokenProcessPool:
        fail("--jobs", f"a process for seed {seed} that lives", "one that was killed (is there enough memory?)")
    except (ValueError, RuntimeError) as error:
        raise type(error)(f"seed {seed}: {error}") from None


def aggregate(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation of the scores over seeds."""
    first = summaries[0]
    return {
        **{key: first[key] for key in ("recipe", "dataset", "metric", "higher_is_better", "parameters", "epochs_run")},
        "seeds": [summary["seed"] for summary in summaries],
        **{key: _spread([summary[key] for summary in summaries]) for key in ("validation", "test")},
        "train_seconds": round(sum(summary["train_seconds"] for summary in summaries), 3),
    }


def write_aggregate(out: Path, results: Results) -> Summary:
    """`aggregate` of all seeds into ``OUT/summary.json``; None where time ran out before."""
    summaries = [summary for summary in results.values() if summary is not None]
    if len(summaries) < len(results):
        return None
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
