"""Several seeds of one recipe, and what they amount to."""

import multiprocessing
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.files import write_json
from gssc.train.run import RunSettings, train


def parse_seeds(text: str) -> list[int]:
    """``"0-4"``, ``"3"`` or ``"0,2,5-7"`` as numbers."""
    seeds: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            fail("seeds", "numbers and ranges such as 0-4 or 0,2,5", repr(text))
        seeds += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(seeds))


def train_seeds(
    recipe: Recipe, dataset: GraphDataset, folders: dict[int, Path], settings: RunSettings, jobs: int = 1
) -> list[dict[str, Any]] | None:
    """Train a run for each seed into its folder, ``jobs`` at a time; None where time ran out for one of them."""
    if jobs == 1 or len(folders) == 1:
        summaries = []
        for seed, folder in folders.items():
            summary = train(recipe, dataset, seed, folder, settings)
            if summary is None:
                return None
            summaries.append(summary)
        return summaries
    # New processes, since neither CUDA nor threads survive a fork; their live displays would overwrite each other.
    settings = replace(settings, live=False)
    threads = max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // jobs))
    with ProcessPoolExecutor(
        min(jobs, len(folders)), multiprocessing.get_context("spawn"), torch.set_num_threads, (threads,)
    ) as pool:
        futures = {seed: pool.submit(train, recipe, dataset, seed, where, settings) for seed, where in folders.items()}
    results = []
    for seed, future in futures.items():
        try:
            results.append(future.result())
        except BrokenProcessPool:
            fail("--jobs", f"processes that live, such as that of seed {seed}", "one that was killed (memory?)")
        except (ValueError, RuntimeError) as error:
            raise type(error)(f"seed {seed}: {error}") from None
    known = [summary for summary in results if summary is not None]
    return known if len(known) == len(results) else None


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
    known = [value for value in values if value is not None]
    return {
        "mean": statistics.fmean(known) if known else None,
        "std": statistics.stdev(known) if len(known) > 1 else 0.0,
        "values": values,
    }
