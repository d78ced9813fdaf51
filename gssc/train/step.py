"""What a step is: gather a batch, forward, loss, backward, clip, AdamW; then an epoch of them, and an evaluation.

This is how a CPU trains, and a GPU where nothing faster can be done. Other ways to run the same steps are captured CUDA
graphs (`gssc.train.replayed`) and the kernels for small graphs (`gssc.molecules`); `gssc.train.trainers` chooses.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gssc.config import Recipe
from gssc.nn import reestimate_batch_norms
from gssc.nn.norm import batch_norms
from gssc.tasks import Task
from gssc.train.evaluate import autocast, batches_in_order, evaluate
from gssc.train.optimizer import Average, clip_gradients, learning_rate, make_optimizer
from gssc.train.processes import Processes
from gssc.train.randomness import seed_step, shuffled
from gssc.train.stopping import Clock
from gssc.train.store import GraphStore


class NonFiniteLossError(RuntimeError):
    """Training diverged; says at which step, and where the last good checkpoint is."""


@dataclass
class Position:
    """Where the loop stands inside an epoch."""

    epoch: int  # number of the epoch, from 1
    step: int  # steps done in it
    losses: list[Tensor]  # of these steps, on the device


class Trainer:
    """A model, its optimiser and the training graphs. Knows nothing of files.

    Args:
        model: The model, on the device of the store.
        store: Training graphs.
        task: Loss and metric.
        recipe: Its sections ``optim`` and ``train`` are used.
        seed: Determines the order of graphs and dropout.
        processes: Those that share each batch.
    """

    def __init__(
        self, model: nn.Module, store: GraphStore, task: Task, recipe: Recipe, seed: int, processes: Processes
    ) -> None:
        self.model, self.store, self.task, self.recipe, self.seed = model, store, task, recipe, seed
        self.processes, self.config, self.clock = processes, recipe.train, Clock()
        self.optimizer = make_optimizer(model, recipe.optim)
        self.average = Average(model, self.config.ema) if self.config.ema else None
        self.runner = processes.wrap(model)
        self.autocast = autocast(store.device, self.config.precision)
        # Averaged weights or other statistics are evaluated in a model of their own.
        self.reestimates = self.config.batch_stats == "reestimated" and bool(batch_norms(model))
        self.evaluated = copy.deepcopy(model) if self.config.ema or self.reestimates else model

    def batches(self, epoch: int) -> list[Tensor]:
        """Graph numbers of every step of an epoch."""
        return list(shuffled(self.store.num_graphs, self.seed, epoch).split(self.config.batch_size))

    def rates(self, epoch: int, steps: int) -> list[float]:
        """Learning rates of the steps of an epoch: each that of the position where it ends."""
        done = [epoch - 1 + (step + 1) / steps for step in range(steps)]
        return [learning_rate(self.recipe.optim, position, self.config.epochs) for position in done]

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        """Take the steps of an epoch that are left; False where ``stop`` said so before the end."""
        batches = self.batches(position.epoch)
        rates = self.rates(position.epoch, len(batches))
        self.model.train()
        while position.step < len(batches):
            if stop():
                return False
            start = time.perf_counter()
            for settings in self.optimizer.param_groups:
                settings["lr"] = rates[position.step]
            position.losses.append(self.step(batches[position.step], position))
            position.step += 1
            self.clock.saw("step", time.perf_counter() - start)
        return True

    def step(self, graphs: Tensor, position: Position) -> Tensor:
        """One step of the optimiser on the graphs with these numbers; returns the loss, on the device."""
        seed_step(self.seed, position.epoch, position.step, self.processes.rank)
        self.optimizer.zero_grad(set_to_none=True)
        several = self.processes.world > 1
        batch = self.store.batch(self.processes.share(graphs, self.store.num_graphs) if several else graphs)
        loss = self.loss(batch.inputs, batch.y, batch.mask)
        # Processes average their gradients, but their losses are parts of one mean.
        (loss * self.processes.world if several else loss).backward()
        norm = clip_gradients(self.model, self.optimizer, self.recipe.optim.clip)
        total = self.processes.sum(loss) if several else loss.detach()
        # A gradient that overflows spoils the weights while the loss still looks well.
        total = torch.where(norm.isfinite(), total, math.nan)
        if total.device.type == "cpu" and not math.isfinite(total.item()):
            # Before the weights are touched. On a GPU the epoch's losses are looked at together.
            raise_if_not_finite([total.item()], position.epoch, position.step)
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model)
        return total

    def loss(self, inputs: dict[str, Tensor], y: Tensor, mask: Tensor | None) -> Tensor:
        """The mean loss of a batch; where several processes share it, the own part of that."""
        with self.autocast:
            raw = self.runner(**inputs)
        reduce = self.processes.sum if self.processes.world > 1 else None
        return self.task.loss(raw.to(torch.get_default_dtype()), y, mask, reduce)

    def finish_epoch(self, position: Position) -> float:
        """The mean loss of an epoch; raises where it is not finite."""
        losses = torch.stack(position.losses).tolist()
        raise_if_not_finite(losses, position.epoch, 0)
        return math.fsum(losses) / len(losses)

    def evaluate(self, store: GraphStore) -> tuple[float, float]:
        """Loss and score as the recipe evaluates: weights as they are or averaged, statistics running or new."""
        start = time.perf_counter()
        if self.evaluated is not self.model:
            self.evaluated.load_state_dict(self.model.state_dict() if self.average is None else self.average.state)
        if self.reestimates:
            self.reestimate()
        result = self.score(store)
        self.clock.saw("evaluation", time.perf_counter() - start)
        return result

    def reestimate(self) -> None:
        """Give the model that is evaluated the statistics of the training graphs."""
        inputs = (batch.inputs for batch in batches_in_order(self.store, self.config.batch_size))
        reestimate_batch_norms(self.evaluated, inputs, self.autocast)

    def score(self, store: GraphStore) -> tuple[float, float]:
        """Loss and score of the model that is evaluated, as it is."""
        return evaluate(self.evaluated, store, self.task, self.config.batch_size, self.config.precision)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights that `evaluate` looked at last."""
        return {name: value.detach().clone() for name, value in self.evaluated.state_dict().items()}


def raise_if_not_finite(losses: list[float], epoch: int, first_step: int) -> None:
    """Raise at the first loss that is not a finite number."""
    for number, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"loss and gradient: expected finite numbers, got {loss} at epoch {epoch}, "
                f"step {first_step + number + 1}"
            )
