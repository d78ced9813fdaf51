"""Training without launch overhead: whole steps over static shapes, captured once as CUDA graphs and replayed.

A step reads the numbers of its graphs and its learning rate from tables on the device, at a position that it advances
itself, and writes its loss into another. The host only says which shape comes next, and reads the losses once per
epoch. Without a GPU the same functions run as they are, which is how they are tested.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gssc.config import Recipe
from gssc.nn.moments import Moments, joined_moments
from gssc.nn.norm import observed_batch_norms, set_statistics
from gssc.padding import Shape, smallest_fit, static_shapes
from gssc.replay import ONE_AT_A_TIME, Replay
from gssc.tasks import Task
from gssc.train.evaluate import evaluating, score
from gssc.train.optimizer import make_optimizer
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer, seed_step
from gssc.train.store import Batch, GraphStore

# Of attention over graphs that are all padded to the largest: so many scores at once are 1 GiB in float32, of which a
# backward pass holds about five. Unless they are few, padding may make them so many times as many at most.
MOST_SCORES, FEW_SCORES, MOST_PADDING = 2**28, 2**24, 16


def why_not(
    recipe: Recipe, device: torch.device, processes: Processes, node_counts: Tensor | None = None
) -> str | None:
    """Why steps are not replayed, in a few words; None where they are. ``node_counts``: the sizes of all graphs."""
    if device.type != "cuda":
        return "there is no GPU"
    if not recipe.train.capture:
        return "train.capture is false"
    if processes.world > 1:
        return "several processes share each step"
    if recipe.train.precision == "float64":
        return "in float64 the convolution looks at sizes of graphs on the host"
    if recipe.model.local in ("gat", "pna"):
        return f"model.local={recipe.model.local} looks at values on the host"
    if recipe.model.glob == "attention" and node_counts is not None and node_counts.numel():
        squares = node_counts.double().square()
        scores = recipe.train.batch_size * recipe.model.heads * float(squares.max())
        wasted = scores > FEW_SCORES and float(squares.max()) > MOST_PADDING * float(squares.mean())
        if wasted or scores > MOST_SCORES:
            return f"attention would pad all graphs to the {int(node_counts.max())} nodes of the largest"
    return None


class Schedule:
    """Batches of one pass over a store as tables on the device: graph numbers of every step, and where it stands."""

    def __init__(self, store: GraphStore, batch_size: int, steps: int) -> None:
        self.store = store
        self.shapes = static_shapes(store.node_counts, store.edge_counts, batch_size)
        self.order = torch.full((steps, self.shapes[0].graphs), store.num_graphs, device=store.device)
        self.at = torch.zeros(1, dtype=torch.long, device=store.device)
        self.next: list[Shape] = []
        self.largest = int(store.node_counts.max()) if store.num_graphs else 0

    def fill(self, batches: list[Tensor], at: int = 0) -> None:
        """Set the batches of a pass; the next step is the one with number ``at``."""
        table = torch.full(self.order.shape, self.store.num_graphs)
        self.next = []
        for row, graphs in zip(table, batches, strict=False):
            row[: graphs.numel()] = graphs
            self.next.append(smallest_fit(self.shapes, graphs.numel(), *self.store.sizes(graphs)))
        self.order.copy_(table)
        self.at.fill_(at)

    def now(self, table: Tensor) -> Tensor:
        """The row of a table that belongs to the step that runs."""
        return table.index_select(0, self.at).squeeze(0)

    def batch(self, shape: Shape) -> Batch:
        """The batch of the step that runs, padded to a shape."""
        batch = self.store.gather(self.now(self.order), shape.nodes, shape.edges, padded=True)
        batch.inputs["largest"] = self.largest
        return batch


class ReplayedTrainer(Trainer):
    """A `Trainer` whose steps and evaluations are replayed."""

    def __init__(
        self, model: nn.Module, store: GraphStore, task: Task, recipe: Recipe, seed: int, processes: Processes
    ) -> None:
        super().__init__(model, store, task, recipe, seed, processes)
        device, steps = store.device, len(self.batches(1))
        self.schedule = Schedule(store, recipe.train.batch_size, steps)
        # Fused AdamW reads a rate in float32, whatever the weights are.
        self.lr = torch.zeros((), dtype=torch.float32, device=device)
        self.optimizer = make_optimizer(model, recipe.optim, self.lr)
        self.table = torch.zeros(steps, dtype=torch.float32, device=device)  # of rates
        self.losses = torch.zeros(steps, device=device)
        self.steps: dict[Shape, Replay] = {}
        self.passes: dict[int, tuple[_Pass, Tensor]] = {}  # by store, with its outputs
        self.statistics: tuple[_Pass, dict[nn.Module, Moments]] | None = None
        # Dropout draws from the default generator: each run has a state of its own to put in there.
        self.generator = torch.Generator(device) if device.type == "cuda" else None

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        batches = self.batches(position.epoch)
        self.schedule.fill(batches, position.step)
        self.table.copy_(torch.tensor(self.rates(position.epoch, len(batches))))
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
                self._set_generator()
                seed_step(self.seed, position.epoch, position.step)
                self.steps[shape]()
            position.step += 1
        position.losses = list(self.losses[: position.step].clone().unbind())
        return complete

    def _capture(self, shape: Shape) -> Replay:
        state = [*self.model.state_dict().values(), self.losses, self.schedule.at]
        state += [value for entry in self.optimizer.state.values() for value in entry.values()]
        if self.average is not None:
            state += [*self.average.state.values(), self.average.steps]
        self._set_generator()
        return Replay(partial(self._step, shape), self.store.device, state)

    def _step(self, shape: Shape) -> None:
        self.lr.copy_(self.schedule.now(self.table))
        loss = self.gradients(self.schedule.batch(shape))
        self.move()
        self.losses.index_copy_(0, self.schedule.at, loss.view(1))
        self.schedule.at += 1

    def reestimate(self) -> None:
        """`reestimate_batch_norms`, batch by batch as replays that add to the same totals."""
        if self.statistics is None:
            totals: dict[nn.Module, Moments] = {}
            self.statistics = _Pass(self.store, self.config.batch_size, self._forward), totals
        one_pass, totals = self.statistics

        def observe(norm: nn.Module, moments: Moments) -> None:
            if norm not in totals:  # by a call before any capture
                totals[norm] = Moments(*(torch.zeros_like(part) for part in moments))
            for total, part in zip(totals[norm], joined_moments(totals[norm], moments), strict=True):
                total.copy_(part)

        with observed_batch_norms(self.evaluated, observe):
            if not totals:
                one_pass.first()
            for moments in totals.values():
                for total in moments:
                    total.zero_()
            one_pass([total for moments in totals.values() for total in moments])
        set_statistics(self.evaluated, totals)

    def score(self, store: GraphStore) -> tuple[float, float]:
        if id(store) not in self.passes:
            raw = torch.zeros(store.y.shape[0], self.task.outputs, device=store.device)

            def forward(inputs: dict[str, Any], at: Tensor) -> None:
                raw.index_copy_(0, at, self._forward(inputs).to(raw.dtype))

            self.passes[id(store)] = _Pass(store, self.config.batch_size, forward), raw
        one_pass, raw = self.passes[id(store)]
        with evaluating(self.evaluated):
            one_pass()
        return score(raw[:-1], store, self.task)

    def _forward(self, inputs: dict[str, Any], at: Tensor | None = None) -> Tensor:
        with self.autocast:
            return self.evaluated(**inputs)

    def _set_generator(self) -> None:
        if self.generator is not None:
            default = torch.cuda.default_generators[self.store.device.index or 0]
            default.graphsafe_set_state(self.generator.graphsafe_get_state())


class _Pass:
    """All graphs of a store in their order, batch by batch through a function of inputs and rows, replayed."""

    def __init__(self, store: GraphStore, batch_size: int, function: Callable[[dict[str, Any], Tensor], Any]) -> None:
        batches = list(torch.arange(store.num_graphs).split(batch_size))
        self.schedule, self.function = Schedule(store, batch_size, len(batches)), function
        self.schedule.fill(batches)
        self.replays: dict[Shape, Replay] = {}

    def __call__(self, state: list[Tensor] | None = None) -> None:
        """Go through all of it; ``state`` is what the function adds to."""
        self.schedule.at.zero_()
        for shape in self.schedule.next:
            if shape not in self.replays:
                changes = [self.schedule.at, *(state or [])]
                self.replays[shape] = Replay(partial(self._batch, shape), self.schedule.store.device, changes)
            self.replays[shape]()

    def first(self) -> None:
        """The first batch, not replayed."""
        self.schedule.at.zero_()
        self._batch(self.schedule.next[0])

    def _batch(self, shape: Shape) -> None:
        batch = self.schedule.batch(shape)
        self.function(batch.inputs, batch.at)
        self.schedule.at += 1
