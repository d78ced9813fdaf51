"""One run: its model, its folder, and what it does around the steps of an epoch."""

import json
import math
import statistics
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
from gssc.shards import ShardedDataset, make_ready
from gssc.train.build import about_data, build_model, describe_weights
from gssc.train.checkpoint import Best
from gssc.train.display import Display
from gssc.train.evaluate import float32_products, predictions, raw_outputs, score
from gssc.train.loaded import take_weights
from gssc.train.optimizer import learning_rate
from gssc.train.processes import RunSettings
from gssc.train.run_folder import RunFolder
from gssc.train.step import NonFiniteLossError, Position, Trainer, mix
from gssc.train.store import GraphStore

FAR_BEHIND, LONG_BEHIND = 2, 30  # training, of the loss on validation; and for so many evaluations
Summary = dict[str, Any] | None  # of a run; None where time ran out


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
