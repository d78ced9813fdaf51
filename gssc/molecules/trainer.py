"""Training through the kernels for small graphs: one run, or several side by side in the same launches.

A step of all runs is replayed as one CUDA graph. It reads the numbers of its graphs, keys of dropout and its learning
rate from tables on the device, which are filled once per epoch, and writes its losses, which are read once per epoch.
Without a GPU the same kernels run through Triton's interpreter, which is how they are tested.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from gssc.molecules.data import molecule_data
from gssc.molecules.model import MoleculeModel, run
from gssc.molecules.workspace import AdamState, Workspace
from gssc.nn.moments import Moments, joined_moments, merge_moments
from gssc.replay import Replay
from gssc.train.step import Position, Trainer, mix_each, shuffled
from gssc.train.store import GraphStore

EVALUATED_AT_ONCE = 256  # graphs of each replica


class MoleculeGroup:
    """R trainers of one recipe and store that differ in their seeds; each is what it would be alone, bit by bit.

    Their models, optimiser states and averages become views of the group's memory, under the names they always have.
    `gssc.molecules.why_not` has to be None for the recipe.
    """

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        first = trainers[0]
        self.trainers, self.task, self.recipe = list(trainers), first.task, first.recipe
        self.device, config = first.store.device, first.recipe.train
        exact = "tf32x3" if self.device.type == "cuda" else "ieee"
        precision, squared = "tf32" if config.precision == "tf32" else exact, first.task.metric == "rmse"
        self.fused = self.judged = MoleculeModel([t.model for t in trainers], precision, squared)
        if first.evaluated is not first.model:
            self.judged = MoleculeModel([t.evaluated for t in trainers], precision, squared)
            self.judged.dropouts = (0.0, 0.0, 0.0)
        data = molecule_data(first.store, self.fused.first, first.task)
        graphs = min(config.batch_size, data.num_graphs)
        self.steps = -(-data.num_graphs // graphs)
        self.work = Workspace(self.fused, data, graphs, self.steps, training=True)
        flat, tensors = self.fused.flat, len(list(first.model.parameters()))
        zeros = torch.zeros_like(flat.params)
        self.moments = AdamState(zeros, zeros.clone(), torch.zeros(len(trainers), tensors, device=self.device))
        # Weights alone are averaged; statistics are those of the models.
        self.averaged = None if first.average is None else flat.params.clone()
        self.average_steps = torch.zeros(len(trainers), dtype=torch.float64, device=self.device)
        self.reestimation = Reestimation(self.judged, self.work) if first.reestimates else None
        step = self.fused.step(self.work, self.moments, self.recipe.optim.clip, self.recipe.optim.weight_decay)
        self.launches = self.fused.forward(self.work) + self.fused.backward(self.work) + step
        self.replay: Replay | None = None
        self.passes: dict[int, tuple[Workspace, Tensor, Replay]] = {}  # evaluations of all graphs of a store
        for row, trainer in enumerate(trainers):
            self._adopt(row, trainer)

    def _adopt(self, row: int, trainer: Trainer) -> None:
        """Make the state of a trainer a view of the group's."""
        flat, moments = self.fused.flat, self.moments
        first, second = flat.views(moments.exp_avg, row), flat.views(moments.exp_avg_sq, row)
        for number, (name, parameter) in enumerate(trainer.model.named_parameters()):
            entries = {"step": moments.steps[row, number], "exp_avg": first[name], "exp_avg_sq": second[name]}
            trainer.optimizer.state[parameter] = entries
        if trainer.average is not None and self.averaged is not None:
            trainer.average.weights = flat.views(self.averaged, row)
            trainer.average.steps = self.average_steps[row]

    def run_epoch(self, positions: Sequence[Position], stop: Callable[[], bool]) -> bool:
        """Take the steps of an epoch that are left, all trainers at once; False where ``stop`` said so before the end.

        They stand at the same step of the same epoch.
        """
        done, losses = positions[0].step, self.work.tables.losses
        self._fill(positions[0].epoch, done)
        if done:
            losses[:done] = torch.stack([torch.stack(position.losses) for position in positions], 1).to(losses)
        while positions[0].step < self.steps and not stop():
            if self.replay is None:
                state = [*self.fused.flat.memory(), *self.moments, self.average_steps, losses, self.work.tables.at]
                state += [] if self.averaged is None else [self.averaged]
                self.replay = Replay(self._step, self.device, state)
            self.replay()
            for position in positions:
                position.step += 1
        for position, column in zip(positions, losses[: positions[0].step].cpu().unbind(1), strict=True):
            position.losses = list(column.unbind())
        return positions[0].step == self.steps

    def _fill(self, epoch: int, at: int) -> None:
        """The tables of an epoch, which goes on at step ``at``."""
        graphs, tables = self.work.data.num_graphs, self.work.tables
        order = torch.full((len(self.trainers), self.steps * self.work.graphs), graphs)
        for row, trainer in zip(order, self.trainers, strict=True):
            row[:graphs] = shuffled(graphs, trainer.seed, epoch)
        tables.order.copy_(order.view(-1, self.steps, self.work.graphs).transpose(0, 1))
        keys = torch.stack([mix_each(self.steps, trainer.seed, 1, epoch) for trainer in self.trainers], 1)
        tables.keys.copy_(keys % 2**32)
        t = (epoch - 1) * self.steps + np.arange(1, self.steps + 1)
        rates = np.stack([self.trainers[0].rates(epoch, self.steps), 1 / (1 - 0.9**t), 1 / np.sqrt(1 - 0.999**t)], 1)
        tables.rates[:, :3] = torch.from_numpy(rates).to(tables.rates)
        tables.at.fill_(at)

    def _step(self) -> None:
        run(self.launches)
        if self.averaged is None:
            return
        self.average_steps += 1
        growing = (1 + self.average_steps) / (10 + self.average_steps)
        params, decay = self.fused.flat.params, self.recipe.train.ema
        self.averaged.lerp_(params, (1.0 - torch.clamp(growing, max=decay)).to(params.dtype).unsqueeze(1))

    def evaluate(self, store: GraphStore) -> list[tuple[float, float]]:
        """Loss and score of every trainer, as `Trainer.evaluate`; the device is asked once."""
        if self.judged is not self.fused:
            for tensor, value in zip(self.judged.flat.memory(), self.fused.flat.memory(), strict=True):
                tensor.copy_(value)
            if self.averaged is not None:
                self.judged.flat.params.copy_(self.averaged)
        if self.reestimation is not None:
            self.reestimation()
        if id(store) not in self.passes:
            self.passes[id(store)] = self._pass(store)
        work, target, replay = self.passes[id(store)]
        work.take_in_order()
        for _ in work.tables.order:
            replay()
        raws, task = work.raw[:, :-1].cpu(), self.task
        return [(float(task.loss(raw, target)), task.score(raw, target)) for raw in raws]

    def _pass(self, store: GraphStore) -> tuple[Workspace, Tensor, Replay]:
        """Memory with outputs, their targets, and what computes them, a batch at a time."""
        data = molecule_data(store, self.fused.first, self.task)
        graphs = min(EVALUATED_AT_ONCE, data.num_graphs)
        work = Workspace(self.judged, data, graphs, -(-data.num_graphs // graphs), training=False)
        launches = self.judged.forward(work)

        def forward() -> None:
            run(launches)
            work.tables.at.add_(1)

        return work, store.y[:-1].cpu(), Replay(forward, self.device, [work.tables.at])


class Reestimation:
    """`reestimate_batch_norms` for all replicas of a model without dropout, in the memory of a training step.

    A batch is normalised by its own statistics. The kernels leave the moments of every graph at every norm; those of
    the graphs are merged, then those of the batches, in float64. The tables are overwritten; they hold all graphs.
    """

    def __init__(self, model: MoleculeModel, work: Workspace) -> None:
        self.model, self.work = model, work
        self.launches = model.forward(work)
        self.before = model.flat.running.clone()
        shape = (model.replicas, 3 * model.layers * model.channels)
        zeros = torch.zeros(shape, dtype=torch.float64, device=work.data.ptr.device)
        self.total = Moments(zeros[:, 0].clone(), zeros, zeros.clone())  # of every replica
        self.replay: Replay | None = None
        # Of the random-walk encodings of all nodes: no weights come before them.
        variance, mean = torch.var_mean(work.data.rwse[:-1].double(), 0)
        self.walks = torch.cat([mean, variance]).to(work.data.rwse.dtype)

    def __call__(self) -> None:
        """Replace the statistics."""
        work, running = self.work, self.model.flat.running
        self.before.copy_(running)
        work.take_in_order()
        for total in self.total:
            total.zero_()
        if self.replay is None:
            self.replay = Replay(self._batch, running.device, [running, *self.total, work.tables.at])
        for _ in work.tables.order:
            self.replay()
        running.copy_(self.before)
        norms, channels = 3 * self.model.layers, self.model.channels
        n, mean, squares = self.total
        enough = (n >= 2).unsqueeze(1)
        variance = squares / (n.unsqueeze(1) - 1).clamp(min=1)
        statistics = torch.stack([mean, variance], 1).view(-1, 2, norms, channels).transpose(1, 2).flatten(1)
        statistics = torch.cat([statistics.to(running.dtype), self.walks.expand(len(statistics), -1)], 1)
        place = running[:, : statistics.shape[1]]
        place.copy_(torch.where(enough, statistics, place))

    def _batch(self) -> None:
        # A batch of fewer than two rows is to meet the old statistics.
        self.model.flat.running.copy_(self.before)
        run(self.launches)
        work = self.work
        for replica in range(self.model.replicas):
            # Copies of one shape, so that sums have the same bits whatever the number of replicas.
            slots = slice(replica * work.graphs, (replica + 1) * work.graphs)
            local, glob = work.mixed_parts[:, :, slots].unbind(1)
            parts = torch.stack([local, glob, work.y_parts[1:, slots]], 1)
            mean, squares = parts.double().permute(3, 2, 0, 1, 4).reshape(2, work.graphs, -1).unbind()
            nodes = work.slots[slots, 2].double().unsqueeze(1)
            batch = merge_moments(Moments(nodes, mean, squares))
            before = Moments(*(total[replica] for total in self.total))
            for total, value in zip(before, joined_moments(before, batch), strict=True):
                total.copy_(value)
        work.tables.at.add_(1)
