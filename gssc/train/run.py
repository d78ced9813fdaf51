"""One run: a recipe, a dataset and a seed, from nothing or from its checkpoint, into a folder; or several at once."""

import json
import math
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from gssc.checks import fail
from gssc.config import Recipe, load_recipe
from gssc.datasets.flat import GraphDataset
from gssc.environment import describe
from gssc.files import read_json, remove_leftovers, save_tensors, write_atomic, write_json
from gssc.model import GSSC
from gssc.nn import synchronize_batch_norms
from gssc.protocols import EvaluationProtocol, due
from gssc.spectra.cache import CacheArgument
from gssc.train.build import about_data, build_model, build_stores
from gssc.train.checkpoint import Best, Progress, check_same_run, load_checkpoint, read_checkpoint, save_checkpoint
from gssc.train.display import Display, duration
from gssc.train.evaluate import default_dtype, evaluate, predict
from gssc.train.loop import NonFiniteLossError, Position, Trainer, raise_if_not_finite
from gssc.train.optimizer import learning_rate
from gssc.train.pace import Pace
from gssc.train.processes import Processes
from gssc.train.randomness import mix
from gssc.train.replay import ONE_AT_A_TIME
from gssc.train.store import GraphStore
from gssc.train.trainers import SideBySide, make_trainers


@dataclass(frozen=True)
class RunSettings:
    """Where and how a run takes place: nothing here changes its result."""

    device: torch.device
    cache: CacheArgument = True
    resume: bool = False
    deadline: float | None = None  # on time.monotonic()
    quiet: bool = False
    live: bool = True  # a display that moves, in a terminal
    processes: Processes = field(default_factory=Processes)


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

    Those that are not finished must stand at the same step. One whose loss is no number drops out, and is an error once
    the others have come to their end.
    """
    runs = [_Run(recipe, dataset, *own, settings) for own in zip(seeds, folders, strict=True)]
    results: dict[int, dict[str, Any] | None] = {}
    for run in runs:
        if settings.resume and (run.folder / "summary.json").exists():
            results[run.seed] = run.finished()
        elif not settings.resume and any((run.folder / name).exists() for name in ("summary.json", "checkpoints")):
            fail("out", "a new folder, or --resume to go on with the run in it", str(run.folder))
    runs = [run for run in runs if run.seed not in results]
    if runs:
        with default_dtype(recipe.train.precision):
            results |= _train(runs)
    return [results[seed] for seed in seeds]


def position_of(folder: Path) -> tuple[int, int]:
    """Epochs, and steps of the next one, after which the run in a folder goes on."""
    path = folder / "checkpoints" / "last.safetensors"
    if not path.exists():
        return 0, 0
    _, about = read_checkpoint(path)
    return about["epoch"], about["step"]


def _train(runs: list["_Run"]) -> dict[int, dict[str, Any] | None]:
    """Runs, from nothing or from their checkpoints, to their end or that of the time: results by seed."""
    recipe, dataset, settings = runs[0].recipe, runs[0].dataset, runs[0].settings
    start = time.perf_counter()
    stores = build_stores(dataset, recipe, settings.device, settings.cache, progress=False)
    prepare_seconds = time.perf_counter() - start
    models, seeds = [run.new_model() for run in runs], [run.seed for run in runs]
    together, remarks = make_trainers(
        recipe, dataset, settings.device, settings.processes, stores["train"], models, seeds
    )
    for run, trainer in zip(runs, together.trainers, strict=True):
        run.begin(trainer, prepare_seconds)
    for remark in remarks:
        runs[0].show.say(remark)
    clock = together.trainers[0].clock
    pace = Pace(recipe.train, settings.deadline, settings.processes, clock, len(runs))
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run.show)
        stack.enter_context(pace.terminable())
        finished = _epochs(runs, together, stores["val"], pace)
    results: dict[int, dict[str, Any] | None] = {}
    for run in runs:
        if run.writer is not None:
            run.writer.close()
        if run.error is not None:
            continue
        if not finished or pace.out_of_time(*["evaluation"] * run.evaluations_left(), "checkpoint"):
            epochs = f"{run.progress.epoch} of {recipe.train.epochs}"
            run.show.say(f"stopped after epoch {epochs}; --resume goes on from here")
            results[run.seed] = None
        else:
            results[run.seed] = run._finish(stores["val"], stores["test"])
    for run in runs:
        if run.error is not None:
            raise run.error if len(runs) == 1 else NonFiniteLossError(f"seed {run.seed}: {run.error}")
    return results


def _epochs(runs: list["_Run"], together: SideBySide, validation: GraphStore, pace: Pace) -> bool:
    """The epochs that are left of all runs; False where time ran out."""
    config, device = runs[0].recipe.train, runs[0].settings.device

    def save() -> None:
        with pace.saving():
            for run in runs:
                run.save()

    for epoch in range(runs[0].progress.epoch + 1, config.epochs + 1):
        positions = [run.begin_epoch(epoch) for run in runs]
        while not _steps(runs, together, positions, pace):
            save()
            if pace.stops() or all(run.error for run in runs):
                return False
        evaluations = due(config, epoch)
        if evaluations and pace.out_of_time(*["evaluation"] * len(evaluations), "checkpoint"):
            save()
            return False
        for run in runs:
            run.finish_steps()
        if all(run.error for run in runs):
            return False
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - runs[0].started
        for protocol in evaluations:
            for run, found in zip(runs, together.evaluate(validation, protocol), strict=True):
                run.judge(protocol, *found)
        for run in runs:
            run.finish_epoch(seconds)
        saves = pace.saves_after(epoch)
        if saves:
            save()
        if epoch < config.epochs and pace.stops():
            if not saves:
                save()
            return False
    return True


def _steps(runs: list["_Run"], together: SideBySide, positions: list[Position], pace: Pace) -> bool:
    """Steps to the end of the epoch; False where time ran out or, after at least one step, a checkpoint is due."""
    position = positions[0]
    first = position.step
    with runs[0]._naming_checkpoint():
        return together.run_epoch(positions, lambda: pace.stops() or (position.step > first and pace.due()))


class _Run:
    """A run and its folder. A loss that is not a number becomes its ``error``; nothing is written after it."""

    trainer: Trainer
    show: Display
    progress: Progress
    position: Position | None = None

    def __init__(self, recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings) -> None:
        self.recipe, self.dataset, self.seed, self.folder, self.settings = recipe, dataset, seed, folder, settings
        self.writes = settings.processes.first
        self.checkpoint = folder / "checkpoints" / "last.safetensors"
        self.metrics = folder / "metrics.jsonl"
        self.about = json.loads(json.dumps(about_data(recipe, dataset)))
        # What a checkpoint must agree with.
        self.identity = {"recipe": recipe.to_dict(), "seed": seed, "dataset": self.about}
        self.saved = "there is no checkpoint yet"
        self.error: NonFiniteLossError | None = None
        self.writer: Any = None
        self.found: dict[str, Any] = {}  # of the evaluations after the epoch
        self.prepare_seconds, self.started, self.resumed_at, self.train_loss = 0.0, 0.0, 0, math.nan

    def finished(self) -> dict[str, Any]:
        """The summary of a run that ended, if it is this one."""
        summary: dict[str, Any] = read_json(self.folder / "summary.json")
        there = {"recipe": load_recipe(self.folder / "config.yaml").to_dict(), "seed": summary.get("seed")}
        check_same_run(self.folder, {**there, "dataset": read_json(self.folder / "dataset.json")}, self.identity)
        return summary

    def new_model(self) -> GSSC:
        """The model as the seed makes it."""
        with ONE_AT_A_TIME:  # runs that share a GPU share the generator of the CPU as well
            torch.manual_seed(mix(self.seed))
            model = build_model(self.recipe, self.about)
        model = model.to(self.settings.device)
        if self.settings.processes.world > 1:
            synchronize_batch_norms(model)
        return model

    def begin(self, trainer: Trainer, prepare_seconds: float) -> None:
        """Take up the trainer, from nothing or from the checkpoint."""
        recipe, settings = self.recipe, self.settings
        self.trainer, self.prepare_seconds = trainer, prepare_seconds
        quiet = settings.quiet or not self.writes
        title = f"{recipe.name} seed {self.seed}"
        self.show = Display(title, recipe.train.epochs, self.dataset.task.metric, quiet, settings.live)
        self.progress = progress = self._start(trainer)
        self.show.say(
            f"{trainer.store.num_graphs:,} training graphs, {self._parameters():,} parameters, on {settings.device}; "
            f"prepared in {prepare_seconds:.1f} s"
            + (f"; resumed after epoch {progress.epoch}" if progress.epoch or progress.step else "")
        )
        self.writer = self._tensorboard(progress.epoch)

    def _parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.trainer.model.parameters())

    def _start(self, trainer: Trainer) -> Progress:
        """Begin anew, or from the checkpoint."""
        if self.writes:
            for folder in (self.folder, self.checkpoint.parent):
                remove_leftovers(folder)
        if self.settings.resume and self.checkpoint.exists():
            progress = load_checkpoint(
                self.checkpoint, trainer.model, trainer.optimizer, trainer.averages, self.identity
            )
            self._keep_metrics(progress.epoch)
            self._note_saved(progress)
            return progress
        if self.writes:
            write_atomic(self.folder / "config.yaml", yaml.safe_dump(self.recipe.to_dict(), sort_keys=False))
            write_json(self.folder / "dataset.json", self.about)
            write_json(self.folder / "environment.json", describe(self.settings.device))
            self._keep_metrics(0)
        return Progress()

    def begin_epoch(self, epoch: int) -> Position:
        """Where the epoch stands that comes next: at its beginning, or where the checkpoint was written."""
        progress, device = self.progress, self.settings.device
        self.position = Position(epoch, 0, [])
        if self.error is None:
            losses = [torch.tensor(x, device=device) for x in progress.losses]
            self.position = Position(epoch, progress.step, losses)
        self.started, self.resumed_at, self.found = time.perf_counter(), self.position.step, {}
        return self.position

    def finish_steps(self) -> None:
        """The mean loss of the epoch."""
        assert self.position is not None
        if self.error is not None:
            return
        with self._failing():
            self.train_loss = self.trainer.finish_epoch(self.position)

    def judge(self, protocol: EvaluationProtocol, loss: float, score: float) -> None:
        """Take note of loss and score on validation, and of the weights that have them where they are the best."""
        if self.error is not None:
            return
        assert self.position is not None
        epoch, own = self.position.epoch, protocol == self.trainer.protocols[0]
        scores = {"val_loss": _plain(loss), "val": _plain(score)} if own else {f"val_{protocol.name}": _plain(score)}
        self.found |= scores
        best = self._best(protocol)
        if self.dataset.task.better(score, best.score):
            best.epoch, best.score, best.weights = epoch, score, self.trainer.weights(protocol)
        elif epoch == self.recipe.train.epochs and not best.weights:
            # No score was ever a number: the last weights stand for the run.
            best.epoch, best.weights = epoch, self.trainer.weights(protocol)

    def _best(self, protocol: EvaluationProtocol) -> Best:
        own = protocol == self.trainer.protocols[0]
        return self.progress.best if own else self.progress.further.setdefault(protocol.name, Best())

    def finish_epoch(self, seconds: float) -> None:
        """Take note of an epoch whose steps took so long."""
        if self.error is not None:
            return
        assert self.position is not None
        config, progress, trainer = self.recipe.train, self.progress, self.trainer
        epoch = self.position.epoch
        graphs = config.batch_size * config.accumulate * (self.position.step - self.resumed_at)
        # The rate of the last step, which a resumed run may find already taken.
        record: dict[str, Any] = {"epoch": epoch, "lr": learning_rate(self.recipe.optim, epoch, config.epochs)}
        record |= {"train_loss": self.train_loss, **self.found, "best_epoch": progress.best.epoch}
        record["seconds"] = round(time.perf_counter() - self.started, 4)
        record["graphs_per_second"] = round(min(graphs, trainer.store.num_graphs) / max(seconds, 1e-9), 1)
        progress.epoch, progress.step, progress.losses = epoch, 0, []
        self.position = None
        self._log(record, self.writer)
        self.show.epoch(record, progress.best.score)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """A loss that is not a number is the end of this run alone."""
        try:
            with self._naming_checkpoint():
                yield
        except NonFiniteLossError as error:
            self.error = error

    @contextmanager
    def _naming_checkpoint(self) -> Iterator[None]:
        """An error about a loss says where the run can go on from."""
        try:
            yield
        except NonFiniteLossError as error:
            raise NonFiniteLossError(f"{error}; {self.saved}") from None

    def evaluations_left(self) -> int:
        """How many evaluations the end of the run needs, at most."""
        protocols = len(self.trainer.protocols)
        return 2 + (3 * protocols if protocols > 1 else 0)

    def _finish(self, validation: GraphStore, test: GraphStore) -> dict[str, Any]:
        """Score the test set once, with the selected weights, and write what is left to write."""
        config, task, progress = self.recipe.train, self.dataset.task, self.progress
        model, own = self.trainer.evaluated, self.trainer.protocols[0]
        protocols = self._scores_by_protocol(validation, test)
        if progress.best.weights:
            model.load_state_dict(progress.best.weights)
        score = protocols[own.name]["test"] if protocols else self._score(test)
        summary: dict[str, Any] = {
            "recipe": self.recipe.name,
            "seed": self.seed,
            "dataset": self.dataset.name,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
            "validation": _plain(progress.best.score),
            "test": score,
            "epoch_selected": progress.best.epoch or config.epochs,
            "epochs_run": config.epochs,
            "parameters": self._parameters(),
            "protocol": own.name,
        }
        if protocols:
            summary["protocols"] = protocols
        if not self.writes:
            return summary
        prediction, target = predict(model, test, task, config.batch_size, config.precision)
        about = {"kind": "predictions", **{key: summary[key] for key in ("recipe", "seed", "metric", "test")}}
        save_tensors(self.folder / "predictions.safetensors", {"prediction": prediction, "target": target}, about)
        about = {"kind": "model", "summary": summary, **self.identity}
        save_tensors(self.folder / "model.safetensors", model.state_dict(), about)
        seconds = math.fsum(json.loads(line)["seconds"] for line in self.metrics.read_text().splitlines())
        summary |= {"train_seconds": round(seconds, 3), "prepare_seconds": round(self.prepare_seconds, 3)}
        write_json(self.folder / "summary.json", summary)
        self.show.say(
            f"validation {task.metric} {_digits(summary['validation'])} (epoch {summary['epoch_selected']}), "
            f"test {_digits(summary['test'])}, {duration(seconds)} of training"
        )
        for name, found in protocols.items():
            self.show.say(
                f"{name}: validation {_digits(found['val'])} (epoch {found['epoch']}), test {_digits(found['test'])}; "
                f"last weights {_digits(found['last_val'])}, {_digits(found['last_test'])}"
            )
        return summary

    def _scores_by_protocol(self, validation: GraphStore, test: GraphStore) -> dict[str, dict[str, Any]]:
        """Where the run follows several: scores of the weights that each has selected, and of the last.

        The recipe's own comes last, and leaves its weights in the model that is evaluated. Selected weights of the
        others are written beside ``model.safetensors``.
        """
        trainer, (own, *further) = self.trainer, self.trainer.protocols
        found: dict[str, dict[str, Any]] = {}
        for protocol in (*further, own) if further else ():
            best = self._best(protocol)
            _, last = trainer.evaluate(validation, protocol)
            scores = {"last_val": _plain(last), "last_test": self._score(test)}
            if best.weights:
                trainer.evaluated.load_state_dict(best.weights)
            selected = {"val": _plain(best.score), "test": self._score(test)}
            selected["epoch"] = best.epoch or self.recipe.train.epochs
            found[protocol.name] = entry = selected | scores
            if self.writes and protocol != own:
                about = {"kind": "model", "protocol": protocol.name, "scores": entry, **self.identity}
                path = self.folder / f"model-{protocol.name}.safetensors"
                save_tensors(path, trainer.evaluated.state_dict(), about)
        return found

    def _score(self, store: GraphStore) -> float | None:
        """Of the model that is evaluated, as it is."""
        config = self.recipe.train
        _, score = evaluate(self.trainer.evaluated, store, self.dataset.task, config.batch_size, config.precision)
        return _plain(score)

    def _log(self, record: dict[str, Any], writer: Any) -> None:
        if self.writes:
            # Not flushed to the disk before a checkpoint needs it: without one, the epoch is trained again.
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        if writer is not None:
            for name, value in record.items():
                if name != "epoch" and value is not None:
                    writer.add_scalar(name, value, record["epoch"])

    def _keep_metrics(self, epochs: int) -> None:
        """Forget epochs that were logged after the checkpoint was written: they are trained again."""
        if not self.writes:
            return
        lines = self.metrics.read_text(encoding="utf-8").splitlines() if self.metrics.exists() else []
        write_atomic(self.metrics, "".join(f"{line}\n" for line in lines[:epochs]))

    def save(self) -> None:
        """A checkpoint, also in the middle of an epoch; not where the losses of that already went wrong."""
        if self.position is not None and self.error is None:
            losses = torch.stack(self.position.losses).tolist() if self.position.losses else []
            with self._failing():
                raise_if_not_finite(losses, self.position.epoch, 0)
            if self.error is None:
                self.progress.step, self.progress.losses = self.position.step, losses
        if self.error is not None:
            return
        trainer = self.trainer
        if self.writes:
            with self.metrics.open("a", encoding="utf-8") as file:
                os.fsync(file.fileno())
            save_checkpoint(
                self.checkpoint, trainer.model, trainer.optimizer, trainer.averages, self.progress, self.identity
            )
        self._note_saved(self.progress)

    def _note_saved(self, progress: Progress) -> None:
        inside = f", step {progress.step} of the next" if progress.step else ""
        self.saved = f"the last good checkpoint is of epoch {progress.epoch}{inside}"

    def _tensorboard(self, epoch: int) -> Any:
        if not (self.writes and self.recipe.train.tensorboard):
            return None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return None
        return SummaryWriter(str(self.folder / "tensorboard"), purge_step=epoch + 1)


def _plain(number: float | None) -> float | None:
    """A number for JSON, which knows no NaN."""
    return number if number is not None and math.isfinite(number) else None


def _digits(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.5f}"
