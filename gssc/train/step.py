"""What a step is: gather a batch, forward, loss, backward, clip, AdamW; then an epoch of them, and an evaluation.

This is how a CPU trains, and a GPU where nothing faster can be done. Other ways to run the same steps are captured CUDA
graphs (`gssc.train.replayed`) and the kernels for small graphs (`gssc.molecules`); `gssc.train.run` chooses.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gssc.checks import check_choice
from gssc.config import Recipe
from gssc.datasets.superpixels import SIDE_OF, mirrored
from gssc.nn import reestimate_batch_norms
from gssc.nn.norm import batch_norms
from gssc.tasks import Task
from gssc.train.evaluate import autocast, batches_in_order, raw_outputs, score
from gssc.train.optimizer import Average, learning_rate, make_optimizer
from gssc.train.processes import Processes
from gssc.train.stopping import Clock
from gssc.train.store import Batch, GraphStore

# Of splitmix64.
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mix(*numbers: int) -> int:
    """One 63-bit seed from several small numbers (the finaliser of splitmix64, applied after each).

    Random numbers of a run are functions of its seed and its position: a resumed run needs no generator's state.
    """
    state = 0
    for number in numbers:
        state = (state + number + GOLDEN) % 2**64
        state = ((state ^ (state >> 30)) * FIRST) % 2**64
        state = ((state ^ (state >> 27)) * SECOND) % 2**64
        state ^= state >> 31
    return state >> 1


def mix_each(count: int, *numbers: int) -> Tensor:
    """``mix(*numbers, i)`` for i = 0, ..., count - 1."""
    return torch.tensor([mix(*numbers, i) for i in range(count)], dtype=torch.long)


def shuffled(graphs: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch, a function of seed and epoch alone."""
    return torch.randperm(graphs, generator=torch.Generator().manual_seed(mix(seed, epoch)))


def seed_step(seed: int, epoch: int, step: int, rank: int = 0) -> None:
    """Seed the global generators, from which dropout draws, for one step."""
    torch.manual_seed(mix(seed, 1, epoch, step, rank))


class NonFiniteLossError(RuntimeError):
    """Training diverged; says at which step, and where the last good checkpoint is."""


def not_finite(loss: float, epoch: int, step: int) -> NonFiniteLossError:
    """The error about the loss of a step, counted from 0."""
    where = f"epoch {epoch}, step {step + 1}"
    return NonFiniteLossError(f"loss and gradient: expected finite numbers, got {loss} at {where}")


@dataclass
class Position:
    """Where the loop stands inside an epoch."""

    epoch: int  # number of the epoch, from 1
    step: int  # steps done in it
    losses: list[Tensor]  # of these steps, on the device

    def finite_losses(self) -> list[float]:
        """The losses as numbers; raises at the first that is not a finite one."""
        losses = torch.stack(self.losses).tolist() if self.losses else []
        for step, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise not_finite(loss, self.epoch, step)
        return losses


class Trainer:
    """A model, on the device of its training graphs, and its optimiser, by a recipe's sections ``optim`` and ``train``.

    Knows nothing of files. The seed determines the order of graphs and dropout.
    """

    def __init__(
        self, model: nn.Module, store: GraphStore, task: Task, recipe: Recipe, seed: int, processes: Processes
    ) -> None:
        self.model, self.store, self.task, self.recipe, self.seed = model, store, task, recipe, seed
        self.processes, self.config, self.clock = processes, recipe.train, Clock()
        if self.config.mirror:
            check_choice("data.dataset where train.mirror is true", recipe.data.dataset, SIDE_OF)
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
        optim, epochs = self.recipe.optim, self.config.epochs
        return [learning_rate(optim, epoch - 1 + (step + 1) / steps, epochs) for step in range(steps)]

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        """Take the steps of an epoch that are left; False where ``stop`` said so before the end."""
        if self.store.negatives is not None:
            self.store.replace_pairs(*self.store.negatives.draw(mix(self.seed, 2, position.epoch)))
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
        if self.processes.world > 1:
            graphs = self.processes.share(graphs, self.store.num_graphs)
        loss = self.gradients(self.store.batch(graphs))
        if loss.device.type == "cpu" and not math.isfinite(loss.item()):
            # Before the weights are touched. On a GPU the epoch's losses are looked at together.
            raise not_finite(loss.item(), position.epoch, position.step)
        self.move()
        return loss

    def gradients(self, batch: Batch) -> Tensor:
        """Clipped gradients of a batch; returns its loss, which is no number where they overflow.

        Such gradients spoil the weights while the loss itself still looks well.
        """
        self.optimizer.zero_grad(set_to_none=True)
        world, inputs = self.processes.world, batch.inputs
        if self.config.mirror:
            x = mirrored(inputs["x"], inputs["batch"], inputs["num_graphs"], SIDE_OF[self.recipe.data.dataset])
            inputs = inputs | {"x": x}
        with self.autocast:
            raw = self.runner(**inputs)
        raw = raw.to(torch.get_default_dtype())
        loss = self.task.loss(raw, batch.y, batch.mask, self.processes.sum if world > 1 else None)
        # Processes average their gradients, but their losses are parts of one mean.
        (loss * world if world > 1 else loss).backward()
        norm = self.optimizer.clip(self.recipe.optim.clip)
        return torch.where(norm.isfinite(), self.processes.sum(loss) if world > 1 else loss.detach(), math.nan)

    def move(self) -> None:
        """A step of the optimiser by these gradients, also of the average."""
        self.optimizer.step()
        if self.average is not None:
            self.average.update(self.model)

    def evaluate(self, store: GraphStore) -> tuple[float, float]:
        """Loss and score as the recipe evaluates: weights as they are or averaged, statistics running or new."""
        if self.evaluated is not self.model:
            averaged = {} if self.average is None else self.average.weights
            self.evaluated.load_state_dict(self.model.state_dict() | averaged)
        if self.reestimates:
            self.reestimate()
        return self.score(store)

    def reestimate(self) -> None:
        """Give the model that is evaluated the statistics of the training graphs."""
        inputs = (batch.inputs for batch in batches_in_order(self.store, self.config.batch_size))
        reestimate_batch_norms(self.evaluated, inputs, self.autocast)

    def score(self, store: GraphStore) -> tuple[float, float]:
        """Loss and score of the model that is evaluated, as it is."""
        raw = raw_outputs(self.evaluated, store, self.config.batch_size, self.config.precision)
        return score(raw, store, self.task)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights that `evaluate` looked at last."""
        return {name: value.detach().clone() for name, value in self.evaluated.state_dict().items()}
