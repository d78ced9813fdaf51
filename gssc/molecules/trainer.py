"""Training through the kernels for small graphs: one run, or several side by side in the same launches.

A step of all runs is replayed as one CUDA graph. It reads the numbers of its graphs, keys of dropout and its learning
rate from tables on the device, which are filled once per epoch, and writes its losses, which are read once per epoch.
Without a GPU the same kernels run through Triton's interpreter, which is how they are tested.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gssc.config import Recipe
from gssc.model import GSSC
from gssc.molecules.fit import molecule_data
from gssc.molecules.model import MoleculeModel, Moments, run
from gssc.molecules.statistics import Reestimation
from gssc.molecules.workspace import Workspace
from gssc.replay import Replay
from gssc.tasks import Task
from gssc.train.evaluate import score_against
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer, mix_each, shuffled
from gssc.train.store import GraphStore

EVALUATED_AT_ONCE = 256  # graphs of each replica


class MoleculeTrainer(Trainer):
    """A `Trainer` whose steps are those of a `MoleculeGroup`: of itself alone, or with others that it is joined to.

    Its model, optimiser state and average are views of the group's memory, under the names they always have.

    Args:
        model, store, task, recipe, seed, processes: As for `Trainer`; `gssc.molecules.why_not` is None.
        alone: Whether it forms a group of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        store: GraphStore,
        task: Task,
        recipe: Recipe,
        seed: int,
        processes: Processes,
        alone: bool = True,
    ) -> None:
        super().__init__(model, store, task, recipe, seed, processes)
        self.group: MoleculeGroup
        self.row = 0
        if alone:
            MoleculeGroup([self])

    def run_epoch(self, position: Position, stop: Callable[[], bool]) -> bool:
        return self.group.run_epoch([position], stop)

    def evaluate(self, store: GraphStore) -> tuple[float, float]:
        return self.group.evaluate(store)[self.row]

    def score(self, store: GraphStore) -> tuple[float, float]:
        return self.group.score(store)[self.row]

    def weights(self) -> dict[str, Tensor]:
        """A copy of the weights that `evaluate` looked at last; the next call overwrites it."""
        return self.group.keep_weights(self.row)


@dataclass
class _Pass:
    """An evaluation of all graphs of a store."""

    work: Workspace
    batches: int
    target: Tensor
    replay: Replay


class MoleculeGroup:
    """R trainers of one recipe and store that differ in their seeds; each is what it would be alone, bit by bit."""

    def __init__(self, trainers: Sequence[MoleculeTrainer]) -> None:
        first = trainers[0]
        self.trainers, self.store, self.task, self.recipe = list(trainers), first.store, first.task, first.recipe
        self.device, self.clock, config = first.store.device, first.clock, first.recipe.train
        exact = "tf32x3" if self.device.type == "cuda" else "ieee"
        precision, squared = "tf32" if config.precision == "tf32" else exact, first.task.metric == "rmse"
        self.fused = self.judged = MoleculeModel([_model(t.model) for t in trainers], precision, squared)
        if first.evaluated is not first.model:
            self.judged = MoleculeModel([_model(t.evaluated) for t in trainers], precision, squared)
            self.judged.dropouts = (0.0, 0.0, 0.0)
        self.data = molecule_data(first.store, self.fused.first, first.task)
        self.graphs = min(config.batch_size, self.data.num_graphs)
        self.steps = -(-self.data.num_graphs // self.graphs)
        self.work = Workspace(self.fused, self.data, self.graphs, self.steps, training=True)
        flat, tensors = self.fused.flat, len(list(first.model.parameters()))
        zeros = torch.zeros_like(flat.params)
        self.moments = Moments(zeros, zeros.clone(), torch.zeros(len(trainers), tensors, device=self.device))
        # Weights alone are averaged; statistics are those of the models.
        self.averaged = None if first.average is None else flat.params.clone()
        self.average_steps = torch.zeros(len(trainers), dtype=torch.float64, device=self.device)
        self.kept = [tensor.clone() for tensor in flat.memory()]
        self.kept_names = [self.judged.flat.named_state(row, self.kept) for row in range(len(trainers))]
        self.reestimation = Reestimation(self.judged, self.work) if first.reestimates else None
        step = self.fused.step(self.work, self.moments, self.recipe.optim.clip, self.recipe.optim.weight_decay)
        self.launches = self.fused.forward(self.work) + self.fused.backward(self.work) + step
        self.replay: Replay | None = None
        self.passes: dict[int, _Pass] = {}
        for row, trainer in enumerate(trainers):
            self._adopt(row, trainer)

    def _adopt(self, row: int, trainer: MoleculeTrainer) -> None:
        """Make the state of a trainer a view of the group's."""
        trainer.group, trainer.row, trainer.clock = self, row, self.clock
        flat, moments = self.fused.flat, self.moments
        first, second = flat.views(moments.exp_avg, row), flat.views(moments.exp_avg_sq, row)
        for number, (name, parameter) in enumerate(trainer.model.named_parameters()):
            entries = {"step": moments.steps[row, number], "exp_avg": first[name], "exp_avg_sq": second[name]}
            trainer.optimizer.state[parameter] = entries
        if trainer.average is not None and self.averaged is not None:
            trainer.average.state = flat.named_state(row, [self.averaged, flat.running, flat.tracked])
            trainer.average.steps = self.average_steps[row]

    def run_epoch(self, positions: Sequence[Position], stop: Callable[[], bool]) -> bool:
        """Take the steps of an epoch that are left, all trainers at once; False where ``stop`` said so before the end.

        They stand at the same step of the same epoch.
        """
        epoch, first = positions[0].epoch, positions[0].step
        self._fill(epoch, first)
        for row, position in enumerate(positions):
            if first:
                self.work.losses[:first, row] = torch.stack(position.losses).to(self.work.losses)
        complete = True
        for _ in range(first, self.steps):
            if stop():
                complete = False
                break
            if self.replay is None:
                self.replay = self._capture()
            self.replay()
            for position in positions:
                position.step += 1
        losses = self.work.losses[: positions[0].step].cpu()
        for row, position in enumerate(positions):
            position.losses = list(losses[:, row].unbind())
        return complete

    def _fill(self, epoch: int, at: int) -> None:
        """The tables of an epoch, which goes on at step ``at``."""
        graphs, work = self.data.num_graphs, self.work
        order = torch.full((len(self.trainers), self.steps * self.graphs), graphs)
        for row, trainer in zip(order, self.trainers, strict=True):
            row[:graphs] = shuffled(graphs, trainer.seed, epoch)
        work.order[: self.steps] = order.view(-1, self.steps, self.graphs).transpose(0, 1).to(self.device)
        keys = torch.stack([mix_each(self.steps, trainer.seed, 1, epoch) for trainer in self.trainers], 1)
        work.keys[: self.steps] = (keys % 2**32).to(self.device)
        rates = self.trainers[0].rates(epoch, self.steps)
        t = (epoch - 1) * self.steps + np.arange(1, self.steps + 1)
        table = np.stack([rates, 1 / (1 - 0.9**t), 1 / np.sqrt(1 - 0.999**t)], 1)
        work.table[: self.steps, :3] = torch.from_numpy(table).to(work.table)
        work.at.fill_(at)

    def _capture(self) -> Replay:
        moments = (self.moments.exp_avg, self.moments.exp_avg_sq, self.moments.steps)
        state = [*self.fused.flat.memory(), *moments, self.average_steps, self.work.losses, self.work.at]
        state += [] if self.averaged is None else [self.averaged]
        return Replay(self._step, self.device, state)

    def _step(self) -> None:
        run(self.launches)
        if self.averaged is None:
            return
        self.average_steps += 1
        growing = (1 + self.average_steps) / (10 + self.average_steps)
        params, decay = self.fused.flat.params, self.recipe.train.ema
        self.averaged.lerp_(params, (1.0 - torch.clamp(growing, max=decay)).to(params.dtype).unsqueeze(1))

    def evaluate(self, store: GraphStore) -> list[tuple[float, float]]:
        """Loss and score of every trainer, as `Trainer.evaluate`."""
        start = time.perf_counter()
        if self.judged is not self.fused:
            for tensor, value in zip(self.judged.flat.memory(), self.fused.flat.memory(), strict=True):
                tensor.copy_(value)
            if self.averaged is not None:
                self.judged.flat.params.copy_(self.averaged)
        if self.reestimation is not None:
            self.reestimation()
        result = self.score(store)
        self.clock.saw("evaluation", time.perf_counter() - start)
        return result

    def score(self, store: GraphStore) -> list[tuple[float, float]]:
        """Loss and score of the models that are evaluated, as they are; the device is asked once."""
        if id(store) not in self.passes:
            self.passes[id(store)] = self._pass(store)
        found = self.passes[id(store)]
        found.work.at.zero_()
        for _ in range(found.batches):
            found.replay()
        raw = found.work.raw[:, :-1].cpu()
        return [score_against(own, found.target, None, self.task) for own in raw]

    def _pass(self, store: GraphStore) -> _Pass:
        data = molecule_data(store, self.fused.first, self.task)
        graphs = min(EVALUATED_AT_ONCE, data.num_graphs)
        batches = -(-data.num_graphs // graphs)
        work = Workspace(self.judged, data, graphs, batches, training=False)
        order = torch.full((batches * graphs,), data.num_graphs)
        order[: data.num_graphs] = torch.arange(data.num_graphs)
        work.order.copy_(order.view(batches, 1, graphs).expand(work.order.shape))
        launches = self.judged.forward(work)

        def forward() -> None:
            run(launches)
            work.at.add_(1)

        return _Pass(work, batches, store.y[:-1].cpu(), Replay(forward, self.device, [work.at]))

    def keep_weights(self, row: int) -> dict[str, Tensor]:
        """Copy what was evaluated of a trainer, on the device; into the same memory every time."""
        for kept, value in zip(self.kept, self.judged.flat.memory(), strict=True):
            kept[row] = value[row]
        return self.kept_names[row]


def _model(module: nn.Module) -> GSSC:
    assert isinstance(module, GSSC)
    return module
