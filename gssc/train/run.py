"""One run: a recipe, a dataset and a seed, from nothing or from its checkpoint, into a folder."""

import json
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from gssc.nn import synchronize_batch_norms
from gssc.spectra.cache import CacheArgument
from gssc.train.build import about_data, build_model, build_stores
from gssc.train.captured import ONE_AT_A_TIME, CapturedTrainer, why_not
from gssc.train.checkpoint import Progress, check_same_run, load_checkpoint, save_checkpoint
from gssc.train.display import Display, duration
from gssc.train.evaluate import default_dtype, evaluate, predict
from gssc.train.loop import NonFiniteLossError, Position, Trainer, raise_if_not_finite
from gssc.train.optimizer import learning_rate
from gssc.train.processes import Processes
from gssc.train.randomness import mix
from gssc.train.store import GraphStore


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
    run = _Run(recipe, dataset, seed, folder, settings)
    if settings.resume and (folder / "summary.json").exists():
        return run.finished()
    if not settings.resume and any((folder / name).exists() for name in ("summary.json", "checkpoints")):
        fail("out", "a new folder, or --resume to go on with the run in it", str(folder))
    with default_dtype(recipe.train.precision):
        return run.train()


class _Run:
    def __init__(self, recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings) -> None:
        self.recipe, self.dataset, self.seed, self.folder, self.settings = recipe, dataset, seed, folder, settings
        self.writes = settings.processes.first
        self.checkpoint = folder / "checkpoints" / "last.safetensors"
        self.metrics = folder / "metrics.jsonl"
        self.about = json.loads(json.dumps(about_data(recipe, dataset)))
        # What a checkpoint must agree with.
        self.identity = {"recipe": recipe.to_dict(), "seed": seed, "dataset": self.about}
        self.interrupted = False
        self.last_saved = 0.0
        self.saved = "there is no checkpoint yet"

    def finished(self) -> dict[str, Any]:
        """The summary of a run that ended, if it is this one."""
        summary: dict[str, Any] = read_json(self.folder / "summary.json")
        there = {"recipe": load_recipe(self.folder / "config.yaml").to_dict(), "seed": summary.get("seed")}
        check_same_run(self.folder, {**there, "dataset": read_json(self.folder / "dataset.json")}, self.identity)
        return summary

    def train(self) -> dict[str, Any] | None:
        recipe, settings = self.recipe, self.settings
        title = f"{recipe.name} seed {self.seed}"
        quiet = settings.quiet or not self.writes
        show = Display(title, recipe.train.epochs, self.dataset.task.metric, quiet, settings.live)
        start = time.perf_counter()
        stores = build_stores(self.dataset, recipe, settings.device, settings.cache, progress=False)
        prepare_seconds = time.perf_counter() - start
        with ONE_AT_A_TIME:  # runs that share a GPU share the generator of the CPU as well
            torch.manual_seed(mix(self.seed))
            model = build_model(recipe, self.about)
        model = model.to(settings.device)
        if settings.processes.world > 1:
            synchronize_batch_norms(model)
        reason = why_not(recipe, settings.device, settings.processes)
        kind = CapturedTrainer if recipe.train.capture and reason is None else Trainer
        trainer = kind(model, stores["train"], self.dataset.task, recipe, self.seed, settings.processes)
        progress = self._start(trainer)
        parameters = sum(p.numel() for p in model.parameters())
        show.say(
            f"{stores['train'].num_graphs:,} training graphs, {parameters:,} parameters, on {settings.device}; "
            f"prepared in {prepare_seconds:.1f} s"
            + (f"; resumed after epoch {progress.epoch}" if progress.epoch or progress.step else "")
        )
        if recipe.train.capture and reason is not None and settings.device.type == "cuda":
            show.say(f"steps are not captured as CUDA graphs, because {reason}")
        writer = self._tensorboard(progress.epoch)
        with show, self._terminable():
            finished = self._epochs(trainer, stores["val"], progress, show, writer)
        if writer is not None:
            writer.close()
        if not finished or self._out_of_time(trainer, "evaluation", "evaluation", "checkpoint"):
            show.say(f"stopped after epoch {progress.epoch} of {recipe.train.epochs}; --resume goes on from here")
            return None
        return self._finish(trainer, stores["test"], progress, show, prepare_seconds, parameters)

    def _start(self, trainer: Trainer) -> Progress:
        """Begin anew, or from the checkpoint."""
        if self.writes:
            for folder in (self.folder, self.checkpoint.parent):
                remove_leftovers(folder)
        if self.settings.resume and self.checkpoint.exists():
            progress = load_checkpoint(
                self.checkpoint, trainer.model, trainer.optimizer, trainer.average, self.identity
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

    def _epochs(self, trainer: Trainer, validation: GraphStore, progress: Progress, show: Display, writer: Any) -> bool:
        """The epochs that are left; False where time ran out."""
        config = self.recipe.train
        device = self.settings.device
        self.last_saved = time.monotonic()
        for epoch in range(progress.epoch + 1, config.epochs + 1):
            start = time.perf_counter()
            position = Position(epoch, progress.step, [torch.tensor(x, device=device) for x in progress.losses])
            resumed_at = progress.step
            while not self._steps(trainer, position):
                self._save_inside(trainer, progress, position)
                if self._stops(trainer):
                    return False
            evaluating = epoch % config.eval_every == 0 or epoch == config.epochs
            if evaluating and self._out_of_time(trainer, "evaluation", "checkpoint"):
                self._save_inside(trainer, progress, position)
                return False
            train_loss = self._mean_loss(trainer, position)
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            graphs = self.recipe.train.batch_size * self.recipe.train.accumulate * (position.step - resumed_at)
            # The rate of the last step, which a resumed run may find already taken.
            record: dict[str, Any] = {"epoch": epoch, "lr": learning_rate(self.recipe.optim, epoch, config.epochs)}
            record["train_loss"] = train_loss
            if evaluating:
                loss, score = trainer.evaluate(validation)
                record |= {"val_loss": _plain(loss), "val": _plain(score)}
                if self.dataset.task.better(score, progress.best_score):
                    progress.best_epoch, progress.best_score = epoch, score
                    progress.best_weights = trainer.weights()
                elif epoch == config.epochs and not progress.best_weights:
                    # No score was ever a number: the last weights stand for the run.
                    progress.best_epoch, progress.best_weights = epoch, trainer.weights()
            record["best_epoch"] = progress.best_epoch
            record["seconds"] = round(time.perf_counter() - start, 4)
            record["graphs_per_second"] = round(min(graphs, trainer.store.num_graphs) / max(seconds, 1e-9), 1)
            progress.epoch, progress.step, progress.losses = epoch, 0, []
            self._log(record, writer)
            show.epoch(record, progress.best_score)
            if epoch % config.checkpoint_every == 0 or epoch == config.epochs or self._due():
                self._save(trainer, progress)
            if epoch < config.epochs and self._stops(trainer):
                self._save(trainer, progress)
                return False
        return True

    def _steps(self, trainer: Trainer, position: Position) -> bool:
        """Steps to the end of the epoch; False where time ran out or, after at least one step, a checkpoint is due."""
        first = position.step
        with self._naming_checkpoint():
            return trainer.run_epoch(position, lambda: self._stops(trainer) or (position.step > first and self._due()))

    def _mean_loss(self, trainer: Trainer, position: Position) -> float:
        with self._naming_checkpoint():
            return trainer.finish_epoch(position)

    @contextmanager
    def _naming_checkpoint(self) -> Iterator[None]:
        """An error about a loss says where the run can go on from."""
        try:
            yield
        except NonFiniteLossError as error:
            raise NonFiniteLossError(f"{error}; {self.saved}") from None

    def _finish(
        self,
        trainer: Trainer,
        test: GraphStore,
        progress: Progress,
        show: Display,
        prepare_seconds: float,
        parameters: int,
    ) -> dict[str, Any]:
        """Score the test set once, with the selected weights, and write what is left to write."""
        config, task = self.recipe.train, self.dataset.task
        model = trainer.evaluated
        if progress.best_weights:
            model.load_state_dict(progress.best_weights)
        _, score = evaluate(model, test, task, config.batch_size, config.precision)
        summary: dict[str, Any] = {
            "recipe": self.recipe.name,
            "seed": self.seed,
            "dataset": self.dataset.name,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
            "validation": _plain(progress.best_score),
            "test": _plain(score),
            "epoch_selected": progress.best_epoch or config.epochs,
            "epochs_run": config.epochs,
            "parameters": parameters,
        }
        if not self.writes:
            return summary
        prediction, target = predict(model, test, task, config.batch_size, config.precision)
        about = {"kind": "predictions", **{key: summary[key] for key in ("recipe", "seed", "metric", "test")}}
        save_tensors(self.folder / "predictions.safetensors", {"prediction": prediction, "target": target}, about)
        about = {"kind": "model", "summary": summary, **self.identity}
        save_tensors(self.folder / "model.safetensors", model.state_dict(), about)
        seconds = math.fsum(json.loads(line)["seconds"] for line in self.metrics.read_text().splitlines())
        summary |= {"train_seconds": round(seconds, 3), "prepare_seconds": round(prepare_seconds, 3)}
        write_json(self.folder / "summary.json", summary)
        show.say(
            f"validation {task.metric} {_digits(summary['validation'])} (epoch {summary['epoch_selected']}), "
            f"test {_digits(summary['test'])}, {duration(seconds)} of training"
        )
        return summary

    def _log(self, record: dict[str, Any], writer: Any) -> None:
        if self.writes:
            with self.metrics.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
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

    def _due(self) -> bool:
        """Whether the last checkpoint is too old; the processes of a run agree on it."""
        late = time.monotonic() - self.last_saved > 60 * self.recipe.train.checkpoint_minutes
        return self.settings.processes.any(late)

    def _stops(self, trainer: Trainer) -> bool:
        return self._out_of_time(trainer, "step", "checkpoint")

    def _save(self, trainer: Trainer, progress: Progress) -> None:
        if self.writes:
            start = time.perf_counter()
            save_checkpoint(self.checkpoint, trainer.model, trainer.optimizer, trainer.average, progress, self.identity)
            trainer.clock.saw("checkpoint", time.perf_counter() - start)
        self.last_saved = time.monotonic()
        self._note_saved(progress)

    def _note_saved(self, progress: Progress) -> None:
        inside = f", step {progress.step} of the next" if progress.step else ""
        self.saved = f"the last good checkpoint is of epoch {progress.epoch}{inside}"

    def _save_inside(self, trainer: Trainer, progress: Progress, position: Position) -> None:
        """A checkpoint in the middle of an epoch; raises where its losses already went wrong."""
        losses = torch.stack(position.losses).tolist() if position.losses else []
        with self._naming_checkpoint():
            raise_if_not_finite(losses, position.epoch, 0)
        progress.step, progress.losses = position.step, losses
        self._save(trainer, progress)

    def _out_of_time(self, trainer: Trainer, *work: str) -> bool:
        """Whether the time left is too short for some work, for any of the processes."""
        deadline = self.settings.deadline
        over = self.interrupted or (deadline is not None and time.monotonic() + trainer.clock.needs(*work) > deadline)
        if deadline is None and self.settings.processes.world == 1:
            return over
        return self.settings.processes.any(over)

    @contextmanager
    def _terminable(self) -> Iterator[None]:
        """A polite request to end (SIGTERM) is treated like a time limit; only the main thread may listen."""

        def note(number: int, frame: object) -> None:
            self.interrupted = True

        try:
            before = signal.signal(signal.SIGTERM, note)
        except ValueError:
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

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
