"""Training without launch overhead: whole steps over static shapes, captured once as CUDA graphs and replayed.

A step reads the numbers of its graphs and its learning rate from tables on the device, at a position that it advances
itself, and writes its loss into another. The host only says which shape comes next, and reads the losses once per
epoch. Without a GPU the same functions run as they are, which is how they are tested.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from gssc.config import Recipe
from gssc.tasks import Task
from gssc.train.captured_statistics import CapturedStatistics
from gssc.train.evaluate import autocast, evaluating, score
from gssc.train.loop import Position, Trainer
from gssc.train.optimizer import learning_rate, make_optimizer
from gssc.train.processes import Processes
from gssc.train.randomness import seed_step
from gssc.train.replay import ONE_AT_A_TIME, Replay
from gssc.train.schedule import Schedule
from gssc.train.shapes import Shape
from gssc.train.store import GraphStore

# Of attention over graphs that are all padded to the largest: so many scores at once are 1 GiB in float32, of which a
# backward pass holds about five. Unless they are few, padding may make them so many times as many at most.
MOST_SCORES, FEW_SCORES, MOST_PADDING = 2**28, 2**24, 16


def why_not(
    recipe: Recipe, device: torch.device, processes: Processes, node_counts: Tensor | None = None
) -> str | None:
    """Why steps cannot be captured, in a few words; None where they can. ``node_counts``: the sizes of all graphs."""
    if device.type != "cuda":
        return "there is no GPU"
    if processes.world > 1:
        return "several processes share each step"
    if recipe.train.precision == "float64":
        return "in float64 the convolution looks at sizes of graphs on the host"
    if recipe.train.accumulate > 1:
        return "gradients are accumulated over batches"
    if recipe.model.local in ("gat", "pna"):
        return f"model.local={recipe.model.local} looks at values on the host"
    if recipe.model.glob == "attention" and node_counts is not None and node_counts.numel():
        squares = node_counts.double().square()
        scores = recipe.train.batch_size * recipe.model.heads * float(squares.max())
        wasted = scores > FEW_SCORES and float(squares.max()) > MOST_PADDING * float(squares.mean())
        if wasted or scores > MOST_SCORES:
            return f"attention would pad all graphs to the {int(node_counts.max())} nodes of the largest"
    return None


class CapturedTrainer(Trainer):
    """A `Trainer` whose steps and evaluations are replayed."""

    def __init__(
        self, model: nn.Module, store: GraphStore, task: Task, recipe: Recipe, seed: int, processes: Processes
    ) -> None:
        super().__init__(model, store, task, recipe, seed, processes)
        device, config = store.device, recipe.train
        steps = len(self.groups(1))
        self.schedule = Schedule(store, config.batch_size, steps)
        self.shapes = self.schedule.shapes
        # Fused AdamW reads a rate in float32, whatever the weights are.
        self.lr = torch.zeros((), dtype=torch.float32, device=device)
        self.optimizer = make_optimizer(model, recipe.optim, self.lr)
        self.rates = torch.zeros(steps, dtype=torch.float32, device=device)
        self.losses = torch.zeros(steps, device=device)
        self.steps: dict[Shape, Replay] = {}
        self.passes: dict[int, tuple[Schedule, Tensor, dict[Shape, Replay]]] = {}
        self.statistics: CapturedStatistics | None = None
        # Dropout draws from the default generator: each run has a state of its own to put in there.
        self.generator = torch.Generator(device) if device.type == "cuda" else None

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        epoch, config = position.epoch, self.recipe.train
        batches = [group[0] for group in self.groups(epoch)]
        self.schedule.fill(batches, position.step)
        done = [epoch - 1 + (step + 1) / len(batches) for step in range(len(batches))]
        rates = [learning_rate(self.recipe.optim, at, config.epochs) for at in done]
        self.rates[: len(rates)] = torch.tensor(rates)
        if position.losses:
            self.losses[: position.step] = torch.stack(position.losses)
        self.model.train()
        complete = True
        for shape in self.schedule.next[position.step :]:
            if stop():
                complete = False
                break
            if shape not in self.steps:
                self.steps[shape] = self._capture(shape)
            with ONE_AT_A_TIME:
                self._own_generator()
                seed_step(self.seed, epoch, position.step)
                self.steps[shape]()
            position.step += 1
        position.losses = list(self.losses[: position.step].clone().unbind())
        return complete

    def _capture(self, shape: Shape) -> Replay:
        state = [*self.model.state_dict().values(), self.losses, self.schedule.at]
        state += [value for entry in self.optimizer.state.values() for value in entry.values()]
        for average in self.averages.values():
            state += [*average.state.values(), average.steps]
        before = [tensor.clone() for tensor in state]

        def restore() -> None:
            with torch.no_grad():
                for tensor, value in zip(state, before, strict=True):
                    tensor.copy_(value)

        self._own_generator()
        return Replay(lambda: self._step(shape), self.store.device, restore)

    def _step(self, shape: Shape) -> None:
        self.lr.copy_(self.schedule.now(self.rates))
        batch = self.schedule.batch(shape)
        self.optimizer.zero_grad(set_to_none=True)
        with autocast(self.store.device, self.recipe.train.precision):
            raw = self.runner(**batch.inputs)
        loss = self.task.loss(raw.to(torch.get_default_dtype()), batch.y, batch.mask)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optim.clip or math.inf)
        self.optimizer.step()
        for average in self.averages.values():
            average.update(self.model)
        noted = torch.where(norm.isfinite(), loss.detach(), math.nan)
        self.losses.index_copy_(0, self.schedule.at, noted.view(1))
        self.schedule.at += 1

    def reestimate(self) -> None:
        if self.statistics is None:
            config = self.recipe.train
            self.statistics = CapturedStatistics(self.evaluated, self.store, config.batch_size, config.precision)
        self.statistics()

    def score(self, store: GraphStore) -> tuple[float, float]:
        if id(store) not in self.passes:
            schedule = Schedule.in_order(store, self.recipe.train.batch_size)
            raw = torch.zeros(store.y.shape[0], self.task.outputs, device=store.device)
            self.passes[id(store)] = schedule, raw, {}
        schedule, raw, replays = self.passes[id(store)]
        schedule.at.zero_()

        def back_to(number: int) -> None:
            schedule.at.fill_(number)

        def forward(shape: Shape) -> None:
            batch = schedule.batch(shape)
            with autocast(store.device, self.recipe.train.precision):
                out = self.evaluated(**batch.inputs)
            raw.index_copy_(0, batch.at, out.to(raw.dtype))
            schedule.at.add_(1)

        with evaluating(self.evaluated):
            for number, shape in enumerate(schedule.next):
                if shape not in replays:
                    replays[shape] = Replay(partial(forward, shape), store.device, partial(back_to, number))
                replays[shape]()
        return score(raw[:-1], store, self.task)

    def _own_generator(self) -> None:
        if self.generator is not None:
            default = torch.cuda.default_generators[self.store.device.index or 0]
            default.graphsafe_set_state(self.generator.graphsafe_get_state())
