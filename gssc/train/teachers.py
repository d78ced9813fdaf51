"""Models that learn from others: several are trained first, and what they say together becomes the target of one more.

The mean prediction of models that differ in their seeds is as a rule better than that of each, and one model of the
same size can learn it (knowledge distillation): for a training graph g with teachers f_1, ..., f_T

    y_g  ←  (f_1(g) + ... + f_T(g)) / T,

in the units of the data, or as probabilities. The labels themselves are read by the teachers alone; validation and test
stay as they are.

The teachers of seed s are the runs of the same recipe without teachers with the seeds T s, ..., T s + T - 1, so that no
two students share one, in ``OUT/seed-s/teachers/seed-t``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.files import DamagedFileError, load_tensors, save_tensors
from gssc.train.build import build_store
from gssc.train.checkpoint import check_same_run
from gssc.train.display import Display
from gssc.train.evaluate import default_dtype, exact_products, raw_outputs
from gssc.train.loaded import load_run
from gssc.train.settings import RunSettings

FOLDER = "teachers"  # below that of the student
KIND = "targets by teachers"
NODES_AT_ONCE = 2**15  # that teachers look at, if a batch is not larger; what they say does not depend on it


def without_teachers(recipe: Recipe) -> Recipe:
    """The recipe of the teachers."""
    return replace(recipe, train=replace(recipe.train, teachers=0))


def settings_of(settings: RunSettings) -> RunSettings:
    """Where and how teachers are trained: those that are there already are kept."""
    return replace(settings, resume=True, finish=False, called="teacher, seed")


def runs_of(recipe: Recipe, seed: int, student: Path) -> list[tuple[int, Path]]:
    """Seed and folder of each teacher of a student, given its own."""
    first = recipe.train.teachers * seed
    return [(teacher, student / FOLDER / f"seed-{teacher}") for teacher in range(first, first + recipe.train.teachers)]


def missing(recipe: Recipe, seed: int, student: Path) -> list[tuple[int, Path]]:
    """Those of `runs_of` that are still to be trained: none once they have said all, or the student is finished."""
    if targets_file(student).exists() or (student / "summary.json").exists():
        return []
    return [run for run in runs_of(recipe, seed, student) if not (run[1] / "summary.json").exists()]


def announce(recipe: Recipe, runs: Sequence[tuple[int, Path]], settings: RunSettings) -> None:
    """Say that the runs to come, given as by `missing`, are those of teachers."""
    seeds = ", ".join(str(seed) for seed, _ in runs)
    Display(recipe.name, 0, "", settings.quiet).say(f"teachers first, seed{'s' * (len(runs) > 1)} {seeds}")


def targets_file(student: Path) -> Path:
    """What the teachers have said: written once, so that a run that is resumed elsewhere learns the same."""
    return student / FOLDER / "targets.safetensors"


def write_targets(
    recipe: Recipe, dataset: GraphDataset, seed: int, student: Path, identity: dict[str, Any], settings: RunSettings
) -> None:
    """What the finished teachers of a student say of its training graphs, into `targets_file`.

    Args:
        recipe: That of the student.
        dataset: Its training part is read, without the targets.
        seed: That of the student.
        student: Its folder.
        identity: What the student must agree with to learn from this file.
        settings: Device and cache.
    """
    places = runs_of(recipe, seed, student)
    runs = [load_run(folder, settings.device) for _, folder in places]
    config, task = recipe.train, dataset.task
    with default_dtype(config.precision), exact_products():
        store = build_store(dataset.splits["train"], recipe, task.level, settings.device, settings.cache)
        at_once = NODES_AT_ONCE * store.num_graphs // max(int(store.node_counts.sum()), 1)
        raws = [raw_outputs(run.model, store, max(at_once, config.batch_size), config.precision) for run in runs]
        targets = task.predict(task.mean(raws)).cpu()
    seconds = sum((run.summary or {}).get("train_seconds", 0.0) for run in runs)
    about = {"teachers": {"seeds": [teacher for teacher, _ in places], "train_seconds": round(seconds, 3)}}
    save_tensors(targets_file(student), {"targets": targets}, {"kind": KIND, **about, **identity})


def read_targets(student: Path, identity: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """Targets of the training graphs, [rows, outputs], with the seeds of the teachers and the time they took."""
    path = targets_file(student)
    tensors, about = load_tensors(path)
    if about.get("kind") != KIND or "targets" not in tensors:
        raise DamagedFileError(f"{path}: expected {KIND}, got {about.get('kind')!r}")
    check_same_run(path, about, identity)
    return tensors["targets"], about["teachers"]
