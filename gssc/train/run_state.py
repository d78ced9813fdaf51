"""One run between its epochs: where it stands, what it has shown, which weights are the best so far."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gssc.checks import fail
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.model import GSSC
from gssc.nn import synchronize_batch_norms
from gssc.replay import ONE_AT_A_TIME
from gssc.train.build import about_data, build_model
from gssc.train.checkpoint import Progress
from gssc.train.display import Display
from gssc.train.evaluate import evaluate, exact_products, predict
from gssc.train.finetune import take_weights
from gssc.train.optimizer import learning_rate
from gssc.train.randomness import mix
from gssc.train.run_folder import RunFolder
from gssc.train.settings import RunSettings
from gssc.train.step import NonFiniteLossError, Position, Trainer, raise_if_not_finite
from gssc.train.store import GraphStore


class RunState:
    """A run with its trainer and its folder.

    A loss that is not a number becomes its ``error``; nothing is written after it.
    """

    trainer: Trainer
    show: Display
    progress: Progress
    position: Position | None = None

    def __init__(self, recipe: Recipe, dataset: GraphDataset, seed: int, folder: Path, settings: RunSettings) -> None:
        self.recipe, self.dataset, self.seed, self.settings = recipe, dataset, seed, settings
        self.about = json.loads(json.dumps(about_data(recipe, dataset)))
        graphs = self.about | {"graphs": dataset.content()}
        identity = {"recipe": recipe.to_dict(), "seed": seed, "dataset": graphs}
        self.folder = RunFolder(folder, identity, settings.processes.first)
        self.saved = "there is no checkpoint yet"
        self.error: NonFiniteLossError | None = None
        self.scores: dict[str, Any] = {}  # of the evaluation after an epoch
        self.beginning = ""  # what is to be said of its first weights
        self.teachers: dict[str, Any] = {}  # their seeds and time, where the run has any
        self.prepare_seconds, self.started, self.resumed_at, self.train_loss = 0.0, 0.0, 0, math.nan

    def new_model(self) -> GSSC:
        """The model as the seed makes it, or as it was left by another run (``train.start``)."""
        with ONE_AT_A_TIME:  # runs that share a GPU share the generator of the CPU as well
            torch.manual_seed(mix(self.seed))
            model = build_model(self.recipe, self.about)
            start = self.recipe.train.start
            # A checkpoint has all weights: those that the run began with may be gone.
            if start is not None and not (self.settings.resume and self.folder.checkpoint.exists()):
                self.beginning = self._take_weights(model, start)
        model = model.to(self.settings.device)
        if self.settings.processes.world > 1:
            synchronize_batch_norms(model)
        return model

    def _take_weights(self, model: GSSC, start: str) -> str:
        try:
            return take_weights(model, self.settings.find_start(start), self.seed)
        except ValueError as error:
            raise type(error)(f"train.start: {error}") from None

    def begin(self, trainer: Trainer, prepare_seconds: float) -> None:
        """Take up the trainer, from nothing or from the checkpoint."""
        recipe, settings = self.recipe, self.settings
        self.trainer, self.prepare_seconds = trainer, prepare_seconds
        quiet = settings.quiet or not self.folder.writes
        title = f"{recipe.name} {settings.called} {self.seed}"
        self.show = Display(title, recipe.train.epochs, self.dataset.task.metric, quiet, settings.live)
        self.progress = progress = self.folder.begin(trainer, settings.device, settings.resume)
        if settings.resume and self.folder.checkpoint.exists():
            self._note_saved()
        if settings.finish and not progress.best.weights:
            fail("finish", "a run that was evaluated at least once", f"{self.folder.path} in its first epoch")
        self.show.say(
            f"{trainer.store.num_graphs:,} training graphs, {self._parameters():,} parameters, on {settings.device}; "
            f"prepared in {prepare_seconds:.1f} s"
            + (f"; resumed after epoch {progress.epoch}" if progress.epoch or progress.step else "")
        )
        if self.beginning:
            self.show.say(self.beginning)
        if recipe.train.tensorboard:
            self.folder.open_events(progress.epoch)

    def _parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.trainer.model.parameters())

    def begin_epoch(self, epoch: int) -> Position:
        """Where the epoch stands that comes next: at its beginning, or where the checkpoint was written."""
        progress, device = self.progress, self.settings.device
        self.position = Position(epoch, 0, [])
        if self.error is None:
            losses = [torch.tensor(x, device=device) for x in progress.losses]
            self.position = Position(epoch, progress.step, losses)
        self.started, self.resumed_at, self.scores = time.perf_counter(), self.position.step, {}
        return self.position

    def finish_steps(self) -> None:
        """The mean loss of the epoch."""
        assert self.position is not None
        if self.error is not None:
            return
        with self._failing():
            self.train_loss = self.trainer.finish_epoch(self.position)

    def judge(self, loss: float, score: float) -> None:
        """Loss and score on validation; the weights that had the best so far are kept."""
        assert self.position is not None
        epoch, best = self.position.epoch, self.progress.best
        self.scores = {"val_loss": _for_json(loss), "val": _for_json(score)}
        if self.dataset.task.better(score, best.score):
            best.epoch, best.score, best.weights = epoch, score, self.trainer.weights()
        elif epoch == self.recipe.train.epochs and not best.weights:
            # No score was ever a number: the last weights stand for the run.
            best.epoch, best.weights = epoch, self.trainer.weights()

    def finish_epoch(self, seconds: float) -> None:
        """Take note of an epoch whose steps took so long."""
        if self.error is not None:
            return
        assert self.position is not None
        config, progress, trainer = self.recipe.train, self.progress, self.trainer
        epoch = self.position.epoch
        graphs = config.batch_size * (self.position.step - self.resumed_at)
        # The rate of the last step, which a resumed run may find already taken.
        record: dict[str, Any] = {"epoch": epoch, "lr": learning_rate(self.recipe.optim, epoch, config.epochs)}
        record |= {"train_loss": self.train_loss, **self.scores, "best_epoch": progress.best.epoch}
        record["seconds"] = round(time.perf_counter() - self.started, 4)
        record["graphs_per_second"] = round(min(graphs, trainer.store.num_graphs) / max(seconds, 1e-9), 1)
        progress.epoch, progress.step, progress.losses = epoch, 0, []
        self.position = None
        self.folder.log(record)
        self.show.epoch(record, progress.best.score)

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
        self.folder.save(self.trainer, self.progress)
        self._note_saved()

    def _note_saved(self) -> None:
        inside = f", step {self.progress.step} of the next" if self.progress.step else ""
        self.saved = f"the last good checkpoint is of epoch {self.progress.epoch}{inside}"

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """A loss that is not a number is the end of this run alone."""
        try:
            with self.naming_checkpoint():
                yield
        except NonFiniteLossError as error:
            self.error = error

    @contextmanager
    def naming_checkpoint(self) -> Iterator[None]:
        """An error about a loss says where the run can go on from."""
        try:
            yield
        except NonFiniteLossError as error:
            raise NonFiniteLossError(f"{error}; {self.saved}") from None

    def check_selected(self) -> None:
        """Weights that are not numbers are an error too: the last step may go wrong after its loss was known."""
        best = self.progress.best
        if self.error is None and not all(bool(tensor.isfinite().all()) for tensor in best.weights.values()):
            with self._failing():
                raise NonFiniteLossError(f"the weights of epoch {best.epoch} are not finite numbers")

    def finish(self, test: GraphStore) -> dict[str, Any]:
        """Score the test set once, with the selected weights, and write what is left to write."""
        config, task, progress, model = self.recipe.train, self.dataset.task, self.progress, self.trainer.evaluated
        if progress.best.weights:
            model.load_state_dict(progress.best.weights)
        with exact_products():  # in float32 also where it was trained in tf32
            _, score = evaluate(model, test, task, config.batch_size, config.precision)
        summary: dict[str, Any] = {
            "recipe": self.recipe.name,
            "seed": self.seed,
            "dataset": self.dataset.name,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
            "validation": _for_json(progress.best.score),
            "test": _for_json(score),
            "epoch_selected": progress.best.epoch or progress.epoch,
            "epochs_run": progress.epoch,
            "parameters": self._parameters(),
            "protocol": config.protocol,
        }
        if self.teachers:
            summary["teachers"] = self.teachers["seeds"]
        if not self.folder.writes:
            return summary
        with exact_products():
            prediction, target = predict(model, test, task, config.batch_size, config.precision)
        self.folder.write_predictions(prediction, target, summary)
        self.folder.write_model(model.state_dict(), summary)
        seconds = self.folder.train_seconds()
        summary |= {"train_seconds": round(seconds, 3), "prepare_seconds": round(self.prepare_seconds, 3)}
        if self.teachers:
            summary["teacher_seconds"] = self.teachers["train_seconds"]
        self.folder.write_summary(summary)
        self.show.result(summary, seconds)
        return summary


def _for_json(number: float | None) -> float | None:
    """JSON knows no NaN."""
    return number if number is not None and math.isfinite(number) else None
