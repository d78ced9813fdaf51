"""Runs from beginning to end: a recipe, a dataset and a seed into a folder; or several seeds side by side."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.train import teachers
from gssc.train.build import build_stores
from gssc.train.evaluate import default_dtype
from gssc.train.run_folder import release
from gssc.train.run_state import RunState
from gssc.train.settings import RunSettings
from gssc.train.step import NonFiniteLossError
from gssc.train.stopping import Stopping
from gssc.train.store import GraphStore
from gssc.train.trainers import SideBySide, make_trainers


def train(
    recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings
) -> dict[str, Any] | None:
    """Train, select on validation, score the test set once; returns the summary, None where time ran out before.

    The folder then holds ``config.yaml``, ``environment.json``, ``dataset.json``, ``metrics.jsonl``, ``summary.json``,
    ``model.safetensors`` (the selected weights), ``predictions.safetensors`` and ``checkpoints/last.safetensors``.
    """
    return train_side_by_side(recipe, dataset, [seed], [folder], settings)[0]


def train_side_by_side(
    recipe: Recipe, dataset: GraphDataset, seeds: list[int], folders: list[Path], settings: RunSettings
) -> list[dict[str, Any] | None]:
    """`train` for several seeds that take their steps together; the kernels for small graphs must take the recipe.

    Those that are not finished must stand at the same step; only one may have teachers. One whose loss is no number
    drops out, and is an error once the others have come to their end.
    """
    runs = [RunState(recipe, dataset, seed, folder, settings) for seed, folder in zip(seeds, folders, strict=True)]
    results: dict[int, dict[str, Any] | None] = {}
    for run in runs:
        if settings.resume and run.folder.is_finished():
            results[run.seed] = run.folder.summary()
        elif not settings.resume and run.folder.is_used():
            fail("out", "a new folder, or --resume to go on with the run in it", str(run.folder.path))
        elif settings.finish and not run.folder.checkpoint.exists():
            fail("finish", "a run with a checkpoint", str(run.folder.path))
    if recipe.train.teachers:
        results |= {run.seed: None for run in runs if run.seed not in results and not _teach(run)}
    runs = [run for run in runs if run.seed not in results]
    if runs:
        try:
            with default_dtype(recipe.train.precision):
                results |= _train(runs)
        finally:
            for run in runs:
                release(run.folder.path)
    return [results[seed] for seed in seeds]


def _teach(run: RunState) -> bool:
    """Train the teachers of a run that has none yet, one after another; False where time ran out."""
    recipe, settings, folder = run.recipe, run.settings, run.folder.path
    if settings.processes.world > 1:
        fail("train.teachers", "0 where several processes share each batch", recipe.train.teachers)
    if teachers.targets_file(folder).exists():
        return True
    alone = teachers.without_teachers(recipe)
    if to_come := teachers.missing(recipe, run.seed, folder):
        teachers.announce(recipe, to_come, settings)
    # All of them: those that are finished are read back, and checked to be of this recipe.
    for seed, place in teachers.runs_of(recipe, run.seed, folder):
        if train(alone, run.dataset, seed, place, teachers.settings_of(settings)) is None:
            return False
    teachers.write_targets(recipe, run.dataset, run.seed, folder, run.folder.identity, settings)
    return True


def _train(runs: list[RunState]) -> dict[int, dict[str, Any] | None]:
    """Runs, from nothing or from their checkpoints, to their end or that of the time: results by seed."""
    recipe, dataset, settings = runs[0].recipe, runs[0].dataset, runs[0].settings
    # Set up: models, graphs on the device, trainers.
    models, seeds = [run.new_model() for run in runs], [run.seed for run in runs]
    start = time.perf_counter()
    stores = build_stores(dataset, recipe, settings.device, settings.cache, progress=False)
    if recipe.train.teachers:
        (run,) = runs  # every seed has targets of its own
        targets, run.teachers = teachers.read_targets(run.folder.path, run.folder.identity)
        stores["train"].replace_targets(targets)
    prepare_seconds = time.perf_counter() - start
    together, way = make_trainers(recipe, dataset, settings.device, settings.processes, stores["train"], models, seeds)
    for run, trainer in zip(runs, together.trainers, strict=True):
        run.begin(trainer, prepare_seconds)
    if way:
        runs[0].show.say(way)
    stopping = Stopping(recipe.train, settings.deadline, settings.processes, together.trainers[0].clock, len(runs))
    # Epochs: steps, evaluation, checkpoint.
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.show)
        stack.enter_context(stopping.terminable())
        finished = settings.finish or _epochs(runs, together, stores["val"], stopping)
    # The end: the test set, or a word about how to go on.
    results: dict[int, dict[str, Any] | None] = {}
    for run in runs:
        run.folder.close_events()
        if finished:
            run.check_selected()
        if run.error is not None:
            continue
        if not finished or stopping.out_of_time("evaluation", "evaluation", "checkpoint"):
            epochs = f"{run.progress.epoch} of {recipe.train.epochs}"
            run.show.say(f"stopped after epoch {epochs}; --resume goes on from here")
            results[run.seed] = None
        else:
            results[run.seed] = run.finish(stores["test"])
    for run in runs:
        if run.error is not None:
            raise run.error if len(runs) == 1 else NonFiniteLossError(f"seed {run.seed}: {run.error}")
    return results


def _epochs(runs: list[RunState], together: SideBySide, validation: GraphStore, stopping: Stopping) -> bool:
    """The epochs that are left of all runs; False where time ran out."""
    config, device = runs[0].recipe.train, runs[0].settings.device

    def save() -> None:
        with stopping.saving():
            for run in runs:
                run.save()

    for epoch in range(runs[0].progress.epoch + 1, config.epochs + 1):
        positions = [run.begin_epoch(epoch) for run in runs]
        while True:
            with runs[0].naming_checkpoint():
                if together.run_epoch(positions, stopping.between_steps()):
                    break
            save()
            if stopping.stops() or all(run.error for run in runs):
                return False
        evaluates = epoch == config.epochs or epoch % config.eval_every == 0
        if evaluates and stopping.out_of_time("evaluation", "checkpoint"):
            save()
            return False
        for run in runs:
            run.finish_steps()
        if all(run.error for run in runs):
            return False
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - runs[0].started
        if evaluates:
            for run, scores in zip(runs, together.evaluate(validation), strict=True):
                run.judge(*scores)
        for run in runs:
            run.finish_epoch(seconds)
        saves = stopping.saves_after(epoch)
        if saves:
            save()
        if epoch < config.epochs and stopping.stops():
            if not saves:
                save()
            return False
    return True
