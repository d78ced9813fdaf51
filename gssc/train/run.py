"""Runs from beginning to end: a recipe, a dataset and a seed into a folder; or several seeds side by side.

From top to bottom: `train` and its set-up (`_train`), how the steps of a run are taken (`choose_way`), the epochs
(`_epochs`), and what one run does around the steps of an epoch (`RunState`). What a step is: `gssc.train.step`.
"""

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from gssc import molecules
from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.datasets.negatives import are_links
from gssc.model import GSSC
from gssc.nn import synchronize_batch_norms
from gssc.replay import ONE_AT_A_TIME
from gssc.shards import ShardedDataset, make_ready
from gssc.train import replayed, teachers
from gssc.train.build import about_data, build_model, build_stores, describe_weights
from gssc.train.checkpoint import Best
from gssc.train.display import Display
from gssc.train.evaluate import default_dtype, float32_products, predictions, raw_outputs, score
from gssc.train.loaded import take_weights
from gssc.train.optimizer import learning_rate
from gssc.train.processes import RunSettings
from gssc.train.run_folder import RunFolder
from gssc.train.sharded import shard_stores
from gssc.train.step import NonFiniteLossError, Position, Trainer, mix
from gssc.train.stopping import Stopping
from gssc.train.store import GraphStore
from gssc.train.threads import giving_way

SideBySide: TypeAlias = "Alone | molecules.MoleculeGroup"
Way = Literal["kernels", "replayed", "launched"]
Folders = Mapping[int, Path]  # of runs, by seed
FAR_BEHIND, LONG_BEHIND = 2, 30  # training, of the loss on validation; and for so many evaluations
Summary = dict[str, Any] | None  # of a run; None where time ran out
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


def _teach(run: "RunState") -> bool:
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


def _train(runs: "list[RunState]", give_way: Callable[[], None]) -> Results:
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


def make_trainers(runs: "list[RunState]", store: GraphStore) -> tuple[SideBySide, str]:
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


def _epochs(runs: "list[RunState]", together: SideBySide, validation: GraphStore, stopping: Stopping) -> bool:
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


class RunState:
    """A run with its trainer and its folder.

    A loss that is not a number becomes its ``error``; nothing is written after it.
    """

    model: GSSC
    trainer: Trainer
    position: Position
    best: Best

    def __init__(self, recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings) -> None:
        self.recipe, self.dataset, self.seed, self.settings = recipe, dataset, seed, settings
        self.about = json.loads(json.dumps(about_data(recipe, dataset)))
        graphs = self.about | {"graphs": dataset.content()}
        identity = {"recipe": recipe.to_dict(), "seed": seed, "dataset": graphs}
        self.folder = RunFolder(folder, identity, settings.processes.first)
        title, quiet = f"{recipe.name} {settings.called} {seed}", settings.quiet or not self.folder.writes
        self.show = Display(title, recipe.train.epochs, dataset.task.metric, quiet, settings.live)
        self.saved = "there is no checkpoint yet"
        self.error: NonFiniteLossError | None = None
        self.beginning = ""  # what is to be said of its first weights
        self.teachers: dict[str, Any] = {}  # their seeds and time, where the run has any
        self.prepare_seconds, self.train_loss = 0.0, math.nan
        self.behind = 0  # evaluations in which training was far worse than validation

    def make_model(self) -> None:
        """The model as the seed makes it, or as it was left by another run (``train.start``)."""
        with ONE_AT_A_TIME:  # runs that share a GPU share the generator of the CPU as well
            torch.manual_seed(mix(self.seed))
            describe_weights(self.recipe, self.about)  # before there are any
            model = build_model(self.recipe, self.about)
            start = self.recipe.train.start
            # A checkpoint has all weights: those that the run began with may be gone.
            if start is not None and not (self.settings.resume and self.folder.checkpoint.exists()):
                try:
                    self.beginning = take_weights(model, self.settings.find_start(start), self.seed)
                except ValueError as error:
                    raise type(error)(f"train.start: {error}") from None
        self.model = model.to(self.settings.device)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        if isinstance(self.dataset, ShardedDataset):
            make_ready(model)
        elif self.settings.processes.world > 1:
            synchronize_batch_norms(model)

    def begin(self, trainer: Trainer, prepare_seconds: float) -> None:
        """Take up the trainer, from nothing or from the checkpoint."""
        settings, self.trainer, self.prepare_seconds = self.settings, trainer, prepare_seconds
        self.position, self.best = self.folder.begin(trainer, settings.resume)
        if settings.resume and self.folder.checkpoint.exists():
            self._note_saved()
        if settings.finish and not self.best.weights:
            fail("finish", "a run that was evaluated at least once", f"{self.folder.path} in its first epoch")
        epochs = self.position.epoch - 1
        self.show.say(
            f"{trainer.store.num_graphs:,} training graphs, {self.parameters:,} parameters, on {settings.device}; "
            f"prepared in {prepare_seconds:.1f} s"
            + (f"; resumed after epoch {epochs}" if epochs or self.position.step else "")
        )
        if self.beginning:
            self.show.say(self.beginning)

    def finish_steps(self) -> None:
        """The mean loss of the epoch."""
        if self.error is None:
            with self.failing():
                self.train_loss = statistics.fmean(self.position.finite_losses())

    def finish_epoch(self, scores: tuple[float, float] | None, start: float, graphs_per_second: float) -> None:
        """Take note of an epoch that began at ``start``, with its loss and score on validation, and go on to the next.

        The weights with the best score so far, or those at the end of the best ``train.select_over`` scores, are kept.
        """
        epochs, epoch, best = self.recipe.train.epochs, self.position.epoch, self.best
        self.position = Position(epoch + 1, 0, [])
        if self.error is not None or self.has_ended(epoch - 1):
            return
        # The rate of the last step, which a resumed run may find already taken.
        record: dict[str, Any] = {"epoch": epoch, "lr": learning_rate(self.recipe.optim, epoch, epochs)}
        record["train_loss"] = self.train_loss
        if scores is not None:
            record |= zip(("val_loss", "val"), map(_for_json, scores), strict=True)
            found = best.median(scores[1], self.recipe.train.select_over)
            if self.dataset.task.better(found, best.score):
                best.epoch, best.score, best.weights = epoch, found, self.trainer.weights()
            elif epoch == epochs and not best.weights:
                # No score was ever a number: the last weights stand for the run.
                best.epoch, best.weights = epoch, self.trainer.weights()
        record |= {"best_epoch": best.epoch, "seconds": round(time.perf_counter() - start, 4)}
        record["graphs_per_second"] = round(graphs_per_second, 1)
        if scores is not None:
            self._compare(scores[0])
        self.folder.log(record)
        self.show.epoch(record, best.score)

    def _compare(self, validation: float) -> None:
        """Say it once where training has been far worse than validation, which it should not be, for long."""
        self.behind = self.behind + 1 if self.train_loss > FAR_BEHIND * validation else 0
        if self.behind == LONG_BEHIND:
            self.show.say(
                f"the training loss has been more than {FAR_BEHIND} times that of validation {LONG_BEHIND} times: too "
                "much dropout (model.dropout_*), or a norm that behaves differently in training (model.norm)?"
            )

    def has_ended(self, epoch: int) -> bool:
        """Whether, after this epoch, validation has not been better for ``train.patience`` epochs."""
        patience, best = self.recipe.train.patience, self.best.epoch
        return patience > 0 and best is not None and epoch - best >= patience

    def save(self) -> None:
        """A checkpoint, also in the middle of an epoch; not where the losses of that already went wrong."""
        if self.error is None:
            with self.failing():
                self.position.finite_losses()
                self.folder.save(self.trainer, self.position, self.best)
                self._note_saved()

    def _note_saved(self) -> None:
        inside = f", step {self.position.step} of the next" if self.position.step else ""
        self.saved = f"the last good checkpoint is of epoch {self.position.epoch - 1}{inside}"

    @contextmanager
    def failing(self) -> Iterator[None]:
        """A loss that is not a number is the end of this run alone; the error says where it can go on from."""
        try:
            yield
        except NonFiniteLossError as error:
            self.error = NonFiniteLossError(f"{error}; {self.saved}")

    def finish(self, test: GraphStore) -> Summary:
        """Score the test set once, with the selected weights, and write what is left to write."""
        config, task, best, model = self.recipe.train, self.dataset.task, self.best, self.trainer.evaluated
        with self.failing():  # the last step may go wrong after its loss was known
            if not all(bool(tensor.isfinite().all()) for tensor in best.weights.values()):
                raise NonFiniteLossError(f"the weights of epoch {best.epoch} are not finite numbers")
        if self.error is not None:
            return None
        if best.weights:
            model.load_state_dict(best.weights)
        with float32_products():  # in float32 also where it was trained in tf32
            raw = raw_outputs(model, test, config.batch_size, config.precision)
        epochs = self.position.epoch - 1
        if self.has_ended(epochs):  # runs at its side may have gone on
            epochs = int(best.epoch or 0) + config.patience
        summary: dict[str, Any] = {
            "recipe": self.recipe.name,
            "seed": self.seed,
            "dataset": self.dataset.name,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
            "validation": _for_json(best.score),
            "test": _for_json(score(raw, test, task)[1]),
            "epoch_selected": best.epoch or epochs,
            "epochs_run": epochs,
            "parameters": self.parameters,
            "protocol": config.protocol,
        }
        if self.teachers:
            summary["teachers"] = self.teachers["seeds"]
        if not self.folder.writes:
            return summary
        seconds = self.folder.train_seconds()
        times = {"train_seconds": round(seconds, 3), "prepare_seconds": round(self.prepare_seconds, 3)}
        if self.teachers:
            times["teacher_seconds"] = self.teachers["train_seconds"]
        self.folder.write_end(model.state_dict(), predictions(raw, test, task), summary, times)
        self.show.result(summary, seconds)
        return summary | times


def _for_json(number: float | None) -> float | None:
    """JSON knows no NaN."""
    return number if number is not None and math.isfinite(number) else None
