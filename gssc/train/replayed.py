"""Training without launch overhead: whole steps over static shapes, captured once as CUDA graphs and replayed.

A step reads the numbers of its graphs and its learning rate from tables on the device, at a position that it advances
itself, and writes its loss into another. The host only says which shape comes next, and reads the losses once per
epoch. Without a GPU the same functions run as they are, which is how they are tested.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gssc.config import Recipe
from gssc.nn.moments import Moments, joined_moments
from gssc.nn.norm import batch_norms, in_eval_mode, observed_batch_norms, set_statistics
from gssc.padding import Shape, smallest_fit, static_shapes
from gssc.replay import ONE_AT_A_TIME, Replay
from gssc.tasks import Task
from gssc.train.evaluate import score
from gssc.train.optimizer import make_optimizer
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer, seed_step
from gssc.train.store import Batch, GraphStore

# Of attention over graphs that are all padded to the largest: so many scores at once are 1 GiB in float32, of which a
# backward pass holds about five. Unless they are few, padding may make them so many times as many at most.
MOST_SCORES, FEW_SCORES, MOST_PADDING = 2**28, 2**24, 16


def why_not(
    recipe: Recipe, device: torch.device, processes: Processes, node_counts: Tensor | None = None, level: str = "graph"
) -> str | None:
    """Why steps are not replayed, in a few words; None where they are. ``node_counts``: the sizes of all graphs."""
    reasons = {
        "there is no GPU": device.type != "cuda",
        "pairs of nodes are predicted, of which batches have no fixed number": level == "edge",
        "train.capture is false": not recipe.train.capture,
        "several processes share each step": processes.world > 1,
        "in float64 the convolution looks at sizes of graphs on the host": recipe.train.precision == "float64",
        f"model.local={recipe.model.local} looks at values on the host": recipe.model.local in ("gat", "pna"),
    }
    if any(reasons.values()):
        return next(reason for reason, holds in reasons.items() if holds)
    if recipe.model.glob in ("attention", "grit") and node_counts is not None and node_counts.numel():
        squares = node_counts.double().square()
        numbers = recipe.model.heads if recipe.model.glob == "attention" else recipe.model.channels
        scores = recipe.train.batch_size * numbers * float(squares.max())
        wasted = scores > FEW_SCORES and float(squares.max()) > MOST_PADDING * float(squares.mean())
        if wasted or scores > MOST_SCORES:
            return f"{recipe.model.glob} would pad all graphs to the {int(node_counts.max())} nodes of the largest"
    return None


class Pass:
    """Steps over batches of a store, replayed: the graph numbers of every step, and where it stands, are on the device.

    All graphs come in their order, unless `fill` sets another; ``function`` is what a step does with its batch, and
    ``state`` what that changes, beside where the pass stands.
    """

    def __init__(
        self,
        store: GraphStore,
        batch_size: int,
        function: Callable[[Batch], object],
        state: Callable[[], list[Tensor]] = list,
    ) -> None:
        self.store, self.function, self.state = store, function, state
        self.shapes = static_shapes(store.node_counts, store.edge_counts, batch_size)
        in_order = torch.arange(store.num_graphs).split(batch_size)
        self.order = torch.full((len(in_order), self.shapes[0].graphs), store.num_graphs, device=store.device)
        self.at = torch.zeros(1, dtype=torch.long, device=store.device)
        self.largest = int(store.node_counts.max()) if store.num_graphs else 0
        self.replays: dict[Shape, Replay] = {}
        self.fill(in_order)

    def fill(self, batches: Sequence[Tensor], at: int = 0) -> None:
        """Set the batches, as many as before; the next step is the one with number ``at``."""
        table = torch.full(self.order.shape, self.store.num_graphs)
        for row, graphs in zip(table, batches, strict=True):
            row[: graphs.numel()] = graphs
        self.next = [smallest_fit(self.shapes, graphs.numel(), *self.store.sizes(graphs)) for graphs in batches]
        self.order.copy_(table)
        self.at.fill_(at)

    def now(self, table: Tensor) -> Tensor:
        """The row of a table that belongs to the step that runs."""
        return table.index_select(0, self.at).squeeze(0)

    def captured(self, shape: Shape) -> Replay:
        """Steps of this shape, captured where there was none yet."""
        if shape not in self.replays:
            state = [self.at, *self.state()]
            self.replays[shape] = Replay(partial(self.launch, shape), self.store.device, state)
        return self.replays[shape]

    def launch(self, shape: Shape) -> None:
        """The next step, on a batch that is padded to this shape, not replayed."""
        batch = self.store.gather(self.now(self.order), shape.nodes, shape.edges, padded=True)
        batch.inputs["largest"] = self.largest
        self.function(batch)
        self.at += 1

    def run(self) -> None:
        """All steps, from the first."""
        self.at.zero_()
        for shape in self.next:
            self.captured(shape)()


class ReplayedTrainer(Trainer):
    """A `Trainer` whose steps and evaluations are replayed."""

    def __init__(
        self, model: nn.Module, store: GraphStore, task: Task, recipe: Recipe, seed: int, processes: Processes
    ) -> None:
        super().__init__(model, store, task, recipe, seed, processes)
        device = store.device
        self.epoch = Pass(store, self.config.batch_size, self._step, self._state)
        steps = len(self.epoch.next)
        # Fused AdamW reads a rate in float32, whatever the weights are.
        self.lr = torch.zeros((), dtype=torch.float32, device=device)
        self.optimizer = make_optimizer(model, recipe.optim, self.lr)
        self.table = torch.zeros(steps, dtype=torch.float32, device=device)  # of rates
        self.losses = torch.zeros(steps, device=device)
        self.scoring: dict[int, tuple[Pass, Tensor]] = {}  # by store, with its outputs
        self.totals: dict[nn.Module, Moments] = {}  # of the inputs of each norm
        self.statistics: Pass | None = None
        # Dropout draws from the default generator: each run has a state of its own to put in there.
        self.generator = torch.Generator(device) if device.type == "cuda" else None

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        batches = self.batches(position.epoch)
        self.epoch.fill(batches, position.step)
        self.table.copy_(torch.tensor(self.rates(position.epoch, len(batches))))
        if position.losses:
            self.losses[: position.step] = torch.stack(position.losses)
        self.model.train()
        for shape in self.epoch.next[position.step :]:
            if stop():
                break
            with ONE_AT_A_TIME:
                if self.generator is not None:
                    default = torch.cuda.default_generators[self.store.device.index or 0]
                    default.graphsafe_set_state(self.generator.graphsafe_get_state())
                replay = self.epoch.captured(shape)
                seed_step(self.seed, position.epoch, position.step)
                replay()
            position.step += 1
        position.losses = list(self.losses[: position.step].clone().unbind())
        return position.step == len(batches)

    def _step(self, batch: Batch) -> None:
        self.lr.copy_(self.epoch.now(self.table))
        loss = self.gradients(batch)
        self.move()
        self.losses.index_copy_(0, self.epoch.at, loss.view(1))

    def _state(self) -> list[Tensor]:
        state = [*self.model.state_dict().values(), self.losses]
        state += [value for entry in self.optimizer.state.values() for value in entry.values()]
        return state if self.average is None else [*state, *self.average.weights.values(), self.average.steps]

    def reestimate(self) -> None:
        """`reestimate_batch_norms`, batch by batch as replays that add to the same totals."""
        if self.statistics is None:
            self.statistics = Pass(self.store, self.config.batch_size, self._forward, self._totals)
            for norm in batch_norms(self.evaluated).values():
                zeros = torch.zeros(2, norm.num_features, dtype=torch.float64, device=self.store.device)
                self.totals[norm] = Moments(zeros.new_zeros(()), *zeros)

        def observe(norm: nn.Module, moments: Moments) -> None:
            for total, part in zip(self.totals[norm], joined_moments(self.totals[norm], moments), strict=True):
                total.copy_(part)

        with observed_batch_norms(self.evaluated, observe):
            for total in self._totals():
                total.zero_()
            self.statistics.run()
        set_statistics(self.evaluated, self.totals)

    def _totals(self) -> list[Tensor]:
        return [total for moments in self.totals.values() for total in moments]

    def score(self, store: GraphStore) -> tuple[float, float]:
        if id(store) not in self.scoring:
            raw = torch.zeros(store.y.shape[0], self.task.outputs, device=store.device)

            def forward(batch: Batch) -> None:
                raw.index_copy_(0, batch.at, self._forward(batch).to(raw.dtype))

            self.scoring[id(store)] = Pass(store, self.config.batch_size, forward), raw
        one_pass, raw = self.scoring[id(store)]
        with in_eval_mode(self.evaluated), torch.no_grad():
            one_pass.run()
        return score(raw[:-1], store, self.task)

    def _forward(self, batch: Batch) -> Tensor:
        with self.autocast:
            return self.evaluated(**batch.inputs)
