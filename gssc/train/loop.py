"""The loop: one step, one epoch, one evaluation. Knows nothing of files."""

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
from gssc.protocols import EvaluationProtocol, followed
from gssc.tasks import Task
from gssc.train.evaluate import autocast, batches_in_order, evaluate, evaluating
from gssc.train.optimizer import Average, clip_gradients, learning_rate, make_optimizer
from gssc.train.processes import Processes
from gssc.train.randomness import seed_step, shuffled
from gssc.train.regional import compile_parts
from gssc.train.shapes import smallest_fit, static_shapes
from gssc.train.store import Batch, GraphStore


class NonFiniteLossError(RuntimeError):
    """Training diverged; says at which step, and where the last good checkpoint is."""


@dataclass
class Position:
    """Where the loop stands inside an epoch."""

    epoch: int  # number of the epoch, from 1
    step: int  # optimiser steps done in it
    losses: list[Tensor]  # of these steps, on the device


class Trainer:
    """A model, its optimiser and the training graphs.

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
        self.processes = processes
        self.optimizer = make_optimizer(model, recipe.optim)
        config = recipe.train
        self.protocols = followed(config)  # that of the recipe comes first
        decays = dict.fromkeys(protocol.ema for protocol in self.protocols if protocol.ema)
        self.averages = {decay: Average(model, decay) for decay in decays}
        self.shapes = static_shapes(store.node_counts, store.edge_counts, config.batch_size) if config.pad else None
        self.runner = processes.wrap(model)
        # Averaged weights or other statistics are evaluated in a model of their own.
        separate = any(protocol.ema or protocol.reestimated for protocol in self.protocols)
        self.evaluated = copy.deepcopy(model) if separate else model
        self.clock = Clock()

    def compile(self) -> str | None:
        """Compile the layers; says why where it does not work, and they then run as they are."""
        models = [self.model] if self.evaluated is self.model else [self.model, self.evaluated]
        return compile_parts(models, self._rehearse)

    def _rehearse(self) -> None:
        """A step without an optimiser and an evaluation, for one batch."""
        batch = self._some_batch()
        self.model.train()
        with autocast(self.store.device, self.recipe.train.precision):
            raw = self.runner(**batch.inputs)
        self.task.loss(raw.to(torch.get_default_dtype()), batch.y, batch.mask, self.processes.sum).backward()
        with evaluating(self.evaluated), autocast(self.store.device, self.recipe.train.precision):
            self.evaluated(**batch.inputs)

    def _some_batch(self) -> Batch:
        graphs = torch.arange(min(self.recipe.train.batch_size, self.store.num_graphs))
        if self.shapes is None:
            return self.store.batch(graphs)
        return self.store.batch(graphs, smallest_fit(self.shapes, graphs.numel(), *self.store.sizes(graphs)))

    def groups(self, epoch: int) -> list[list[Tensor]]:
        """Graph numbers of every optimiser step of an epoch: ``accumulate`` batches each."""
        config = self.recipe.train
        batches = list(shuffled(self.store.num_graphs, self.seed, epoch).split(config.batch_size))
        if config.last_batch == "drop" and len(batches) > 1 and batches[-1].numel() < config.batch_size:
            batches.pop()
        return [batches[i : i + config.accumulate] for i in range(0, len(batches), config.accumulate)]

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        """Take the steps of an epoch that are left; False where ``stop`` said so before the end."""
        groups = self.groups(position.epoch)
        self.model.train()
        for group in groups[position.step :]:
            if stop():
                return False
            start = time.perf_counter()
            done = position.epoch - 1 + (position.step + 1) / len(groups)
            for settings in self.optimizer.param_groups:
                settings["lr"] = learning_rate(self.recipe.optim, done, self.recipe.train.epochs)
            position.losses.append(self.step(group, position))
            position.step += 1
            self.clock.saw("step", time.perf_counter() - start)
        return True

    def step(self, group: list[Tensor], position: Position) -> Tensor:
        """One step of the optimiser; returns the joint loss, on the device."""
        seed_step(self.seed, position.epoch, position.step, self.processes.rank)
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for graphs in group:
            own = self.processes.share(graphs, self.store.num_graphs)
            shape = None
            if self.shapes is not None:
                shape = smallest_fit(self.shapes, own.numel(), *self.store.sizes(own))
            batch = self.store.batch(own, shape)
            with autocast(self.store.device, self.recipe.train.precision):
                raw = self.runner(**batch.inputs)
            raw = raw.to(torch.get_default_dtype())
            loss = self.task.loss(raw, batch.y, batch.mask, self.processes.sum) / len(group)
            # Processes average their gradients, but their losses are parts of one mean.
            (loss * self.processes.world).backward()
            losses.append(loss.detach())
        norm = clip_gradients(self.model, self.optimizer, self.recipe.optim.clip)
        total = self.processes.sum(torch.stack(losses).sum())
        # A gradient that overflows spoils the weights while the loss still looks well.
        total = torch.where(norm.isfinite(), total, math.nan)
        if total.device.type == "cpu" and not math.isfinite(total.item()):
            # Before the weights are touched. On a GPU the epoch's losses are looked at together.
            raise_if_not_finite([total.item()], position.epoch, position.step)
        self.optimizer.step()
        for average in self.averages.values():
            average.update(self.model)
        return total

    def finish_epoch(self, position: Position) -> float:
        """The mean loss of an epoch; raises where it is not finite."""
        losses = torch.stack(position.losses).tolist()
        raise_if_not_finite(losses, position.epoch, 0)
        return math.fsum(losses) / len(losses)

    def evaluate(self, store: GraphStore, protocol: EvaluationProtocol | None = None) -> tuple[float, float]:
        """Loss and score by a protocol that the run follows, that of the recipe where none is given."""
        start = time.perf_counter()
        protocol = protocol or self.protocols[0]
        if self.evaluated is not self.model:
            self.evaluated.load_state_dict(
                self.averages[protocol.ema].state if protocol.ema else self.model.state_dict()
            )
        if protocol.reestimated and batch_norms(self.evaluated):
            self.reestimate()
        result = self.score(store)
        self.clock.saw("evaluation", time.perf_counter() - start)
        return result

    def reestimate(self) -> None:
        """Give the model that is evaluated the statistics of the training graphs."""
        config = self.recipe.train
        inputs = (batch.inputs for batch in batches_in_order(self.store, config.batch_size))
        reestimate_batch_norms(self.evaluated, inputs, autocast(self.store.device, config.precision))

    def score(self, store: GraphStore) -> tuple[float, float]:
        """Loss and score of the model that is evaluated, as it is."""
        return evaluate(self.evaluated, store, self.task, self.recipe.train.batch_size, self.recipe.train.precision)

    def weights(self, protocol: EvaluationProtocol | None = None) -> dict[str, Tensor]:
        """A copy of the weights that `evaluate` looked at last, by this protocol."""
        return {name: value.detach().clone() for name, value in self.evaluated.state_dict().items()}


class Clock:
    """The longest times seen, to foresee whether a piece of work ends before a deadline."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    def saw(self, work: str, seconds: float) -> None:
        """Remember how long some work took."""
        self.longest[work] = max(seconds, self.longest.get(work, 0.0))

    def needs(self, *work: str) -> float:
        """Seconds to allow for such work, with a margin."""
        return 1.0 + 1.5 * sum(self.longest.get(name, 0.0) for name in work)


def raise_if_not_finite(losses: list[float], epoch: int, first_step: int) -> None:
    """Raise at the first loss that is not a finite number."""
    for number, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"loss and gradient: expected finite numbers, got {loss} at epoch {epoch}, "
                f"step {first_step + number + 1}"
            )
