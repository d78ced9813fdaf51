"""Runs from beginning to end: a recipe, a dataset and a seed into a folder; or several seeds side by side.

From top to bottom: `train`, set-up and end (`_train`), the epochs (`_epochs`), how their steps are taken
(`choose_way`), teachers first (`_teach`). What one run does around the steps of an epoch is `gssc.train.run_state`,
what a step is `gssc.train.step`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, TypeAlias

import torch

from gssc import molecules
from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.datasets.negatives import are_links
from gssc.shards import ShardedDataset
from gssc.train import replayed, teachers
from gssc.train.build import build_stores
from gssc.train.evaluate import default_dtype
from gssc.train.processes import RunSettings
from gssc.train.run_state import RunState, Summary
from gssc.train.sharded import shard_stores
from gssc.train.step import NonFiniteLossError, Position, Trainer
from gssc.train.stopping import Stopping
from gssc.train.store import GraphStore
from gssc.train.threads import giving_way

SideBySide: TypeAlias = "Alone | molecules.MoleculeGroup"
Way = Literal["kernels", "replayed", "launched"]
Folders = Mapping[int, Path]  # of runs, by seed
Results = dict[int, Summary]  # by seed


def train(recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings) -> Summary:
    """Train, select on validation, score the test set once; returns the summary, None where time ran out before.

    The folder then holds ``config.yaml``, ``environment.json``, ``dataset.json``, ``metrics.jsonl``, ``summary.json``,
    ``model.safetensors`` (the selected weights), ``predictions.safetensors`` and ``checkpoints/last.safetensors``.
    """
    return train_side_by_side(recipe, dataset, {seed: folder}, settings)[seed]


def train_side_by_side(recipe: Recipe, dataset: GraphDataset, folders: Folders, settings: RunSettings) -> Results:
    """`train` for several seeds that take their steps together; the kernels for small graphs must take the recipe.

    Runs that are not finished must stand at the same step; only one may have teachers. One whose loss is no number
    drops out, and is an error once the others have come to their end.
    """
    runs = [RunState(recipe, dataset, seed, folder, settings) for seed, folder in folders.items()]
    results: Results = {}
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
            say = runs[0].show.say
            with default_dtype(recipe.train.precision), giving_way(say, settings.gives_way) as give_way:
                results |= _train(runs, give_way)
        finally:
            for run in runs:
                run.folder.release()
    return {seed: results[seed] for seed in folders}


def _train(runs: list[RunState], give_way: Callable[[], None]) -> Results:
    """Runs, from nothing or from their checkpoints, to their end or that of the time: results by seed."""
    recipe, dataset, settings = runs[0].recipe, runs[0].dataset, runs[0].settings
    # Set up: models, graphs on the device, trainers.
    for run in runs:
        run.make_model()
    start = time.perf_counter()
    if isinstance(dataset, ShardedDataset):
        stores = shard_stores(dataset, recipe, settings.device, settings.processes)
    else:
        stores = build_stores(dataset, recipe, settings.device, settings.cache)
    if recipe.train.teachers:
        (run,) = runs  # every seed has targets of its own
        targets, run.teachers = teachers.read_targets(run.folder.path, run.folder.identity)
        stores["train"].replace_targets(targets)
    prepare_seconds = time.perf_counter() - start
    together, way = make_trainers(runs, stores["train"])
    for run, trainer in zip(runs, together.trainers, strict=True):
        run.begin(trainer, prepare_seconds)
    if way:
        runs[0].show.say(way)
    clock, watch = together.trainers[0].clock, (runs[0].show.say, give_way)
    stopping = Stopping(recipe.train, settings.deadline, settings.processes, clock, len(runs), *watch)
    # Epochs: steps, evaluation, checkpoint.
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.show)
        stack.enter_context(stopping.terminable())
        finished = settings.finish or _epochs(runs, together, stores["val"], stopping)
    # The end: the test set, or a word about how to go on.
    results: Results = {}
    for run in runs:
        if run.error is not None:
            continue
        if not finished or stopping.out_of_time("evaluation", "evaluation", "checkpoint"):
            epochs = f"{run.position.epoch - 1} of {recipe.train.epochs}"
            run.show.say(f"stopped after epoch {epochs}; --resume goes on from here")
            results[run.seed] = None
        else:
            results[run.seed] = run.finish(stores["test"])
    for run in runs:
        if run.error is not None:
            raise run.error if len(runs) == 1 else NonFiniteLossError(f"seed {run.seed}: {run.error}")
    return results


def _epochs(runs: list[RunState], together: SideBySide, validation: GraphStore, stopping: Stopping) -> bool:
    """The epochs that are left of all runs; False where time ran out, or no run is left."""
    config, device = runs[0].recipe.train, runs[0].settings.device

    def save() -> None:
        with stopping.timing("checkpoint"):
            for run in runs:
                run.save()

    for epoch in range(runs[0].position.epoch, config.epochs + 1):
        if all(run.error or run.has_ended(epoch - 1) for run in runs):
            break
        positions = [run.position for run in runs]
        start, resumed_at, complete = time.perf_counter(), positions[0].step, False
        while not complete:
            with runs[0].failing():  # a run alone may notice its loss at once
                complete = together.run_epoch(positions, stopping.between_steps())
            if not complete:
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
        seconds = time.perf_counter() - start
        graphs = min(config.batch_size * (positions[0].step - resumed_at), together.trainers[0].store.num_graphs)
        scores: Sequence[tuple[float, float] | None] = [None] * len(runs)
        if evaluates:
            with stopping.timing("evaluation"):
                scores = together.evaluate(validation)
        for run, found in zip(runs, scores, strict=True):
            run.finish_epoch(found, start, graphs / max(seconds, 1e-9))
        saves = stopping.saves_after(epoch)
        stops = epoch < config.epochs and stopping.stops()
        if saves or stops:
            save()
        if stops:
            return False
    return True


def choose_way(recipe: Recipe, dataset: GraphDataset, settings: RunSettings) -> tuple[Way, str]:
    """The fastest way that takes a run, and a line that says which it is and why it is no other."""
    device, processes = settings.device, settings.processes
    if isinstance(dataset, ShardedDataset):
        return "launched", "steps: launched one by one, on shards"
    against_kernels = molecules.why_not(recipe, dataset, device, processes)
    if against_kernels is None:
        return "kernels", "steps: the kernels for small graphs"
    no_kernels = f"the kernels for small graphs are not used, because {against_kernels}"
    against_replay = replayed.why_not(recipe, device, processes, dataset.node_counts(), dataset.task.level)
    if against_replay is None:
        return "replayed", f"steps: replayed as CUDA graphs; {no_kernels}"
    no_replay = f"they are not replayed as CUDA graphs, because {against_replay}"
    return "launched", f"steps: launched one by one; {no_replay}; {no_kernels}"


class Alone:
    """One trainer, whatever its kind, as a group of them that take their steps together."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainers = [trainer]

    def run_epoch(self, positions: Sequence[Position], stop: Callable[[], bool]) -> bool:
        return self.trainers[0].run_epoch(positions[0], stop)

    def evaluate(self, store: GraphStore) -> list[tuple[float, float]]:
        return [self.trainers[0].evaluate(store)]


def make_trainers(runs: list[RunState], store: GraphStore) -> tuple[SideBySide, str]:
    """A trainer for the model of every run, and what is to be said of it (on a CPU, where all run alike, nothing).

    Several runs need a recipe that the kernels for small graphs take.
    """
    recipe, dataset, settings = runs[0].recipe, runs[0].dataset, runs[0].settings
    way, line = choose_way(recipe, dataset, settings)
    kind = replayed.ReplayedTrainer if way == "replayed" else Trainer
    trainers = [kind(run.model, store, dataset.task, recipe, run.seed, settings.processes) for run in runs]
    if way == "kernels":
        return molecules.MoleculeGroup(trainers), line
    return Alone(*trainers), line if settings.device.type == "cuda" else ""


def _teach(run: RunState) -> bool:
    """Train the teachers of a run that has none yet, one after another; False where time ran out."""
    recipe, folder = run.recipe, run.folder.path
    if run.settings.processes.world > 1:
        fail("train.teachers", "0 where several processes share each batch", recipe.train.teachers)
    if are_links(run.dataset.splits["train"], run.dataset.task):
        fail("train.teachers", "0 where negative pairs are drawn in every epoch", recipe.train.teachers)
    if teachers.targets_file(folder).exists():
        return True
    alone, _, settings = teachers.announce(recipe, {run.seed: folder}, run.settings)
    # All of them: those that are finished are read back, and checked to be of this recipe.
    for seed, place in teachers.runs_of(recipe, run.seed, folder).items():
        if train(alone, run.dataset, seed, place, settings) is None:
            return False
    teachers.write_targets(run)
    return True
