"""Models that learn from others: several are trained first, and what they say together becomes the target of one more.

The mean prediction of models that differ in their seeds is as a rule better than that of each, and one model of the
same size can learn it (knowledge distillation): for a training graph g with teachers f_1, ..., f_T

    y_g  ←  (f_1(g) + ... + f_T(g)) / T,

in the units of the data, or as probabilities. The labels themselves are read by the teachers alone; validation and test
stay as they are.

The teachers of seed s are the runs of the same recipe without teachers with the seeds T s, ..., T s + T - 1, so that no
two students share one, in ``OUT/seed-s/teachers/seed-t``.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from gssc.config import Recipe
from gssc.files import DamagedFileError, load_tensors, save_tensors
from gssc.train.build import build_store
from gssc.train.checkpoint import check_same_run
from gssc.train.display import plain_console
from gssc.train.evaluate import default_dtype, float32_products, raw_outputs
from gssc.train.loaded import load_run
from gssc.train.processes import RunSettings
from gssc.train.run_state import RunState

FOLDER = "teachers"  # below that of the student
KIND = "targets by teachers"
NODES_AT_ONCE = 2**15  # that teachers look at, if a batch is not larger; what they say does not depend on it


def runs_of(recipe: Recipe, seed: int, student: Path) -> dict[int, Path]:
    """The folders of the teachers of a student, by their seeds, given its own."""
    teachers = range(recipe.train.teachers * seed, recipe.train.teachers * (seed + 1))
    return {teacher: student / FOLDER / f"seed-{teacher}" for teacher in teachers}


def announce(
    recipe: Recipe, students: Mapping[int, Path], settings: RunSettings
) -> tuple[Recipe, dict[int, Path], RunSettings]:
    """What teachers are trained by, which of them are still to be trained, and where and how; says which these are.

    Those that are there already are kept; none is needed once they have said all, or the student is finished.
    """
    to_come: dict[int, Path] = {}
    for seed, student in students.items():
        if not targets_file(student).exists() and not (student / "summary.json").exists():
            runs = runs_of(recipe, seed, student)
            to_come |= {teacher: run for teacher, run in runs.items() if not (run / "summary.json").exists()}
    if to_come:
        seeds = f"seed{'s' * (len(to_come) > 1)} {', '.join(map(str, to_come))}"
        plain_console(settings.quiet).print(f"{recipe.name}: teachers first, {seeds}")
    alone = replace(recipe, train=replace(recipe.train, teachers=0))
    return alone, to_come, replace(settings, resume=True, finish=False, called="teacher, seed")


def targets_file(student: Path) -> Path:
    """What the teachers have said: written once, so that a run that is resumed elsewhere learns the same."""
    return student / FOLDER / "targets.safetensors"


def write_targets(student: RunState) -> None:
    """What the finished teachers of a student say of its training graphs, into `targets_file`.

    The student must agree with its identity in there to learn from it.
    """
    recipe, settings, task, folder = student.recipe, student.settings, student.dataset.task, student.folder.path
    places = runs_of(recipe, student.seed, folder)
    runs = [load_run(place, settings.device) for place in places.values()]
    config = recipe.train
    with default_dtype(config.precision), float32_products():
        graphs = student.dataset.splits["train"]
        store = build_store(graphs, recipe, task.level, settings.device, settings.cache)
        at_once = NODES_AT_ONCE * store.num_graphs // max(int(store.node_counts.sum()), 1)
        raws = [raw_outputs(run.model, store, max(at_once, config.batch_size), config.precision) for run in runs]
        targets = task.predict(task.mean(raws)).cpu()
    seconds = sum((run.summary or {}).get("train_seconds", 0.0) for run in runs)
    about = {"teachers": {"seeds": list(places), "train_seconds": round(seconds, 3)}}
    save_tensors(targets_file(folder), {"targets": targets}, {"kind": KIND, **about, **student.folder.identity})


def read_targets(student: Path, identity: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """Targets of the training graphs, [rows, outputs], with the seeds of the teachers and the time they took."""
    path = targets_file(student)
    tensors, about = load_tensors(path)
    if about.get("kind") != KIND or "targets" not in tensors:
        raise DamagedFileError(f"{path}: expected {KIND}, got {about.get('kind')!r}")
    check_same_run(path, about, identity)
    return tensors["targets"], about["teachers"]
