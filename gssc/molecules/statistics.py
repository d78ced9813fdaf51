"""BatchNorm statistics of all training graphs, through the kernels for small graphs."""

import torch

from gssc.molecules.model import MoleculeModel, run
from gssc.molecules.workspace import Workspace
from gssc.nn.moments import Moments, joined_moments, merge_moments
from gssc.replay import Replay


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
