"""BatchNorm statistics of all training graphs, through the kernels for small graphs."""

import torch
from torch import Tensor

from gssc.molecules.model import MoleculeModel, run
from gssc.molecules.workspace import Workspace
from gssc.nn.moments import Moments, merge_moments
from gssc.replay import Replay

NODES = 2  # column of ``Workspace.slots`` with the number of nodes


class Reestimation:
    """`reestimate_batch_norms` for all replicas at once: mean and unbiased variance of all rows of all batches.

    A batch is normalised by its own statistics, and nothing is dropped. The kernels leave the moments of every graph
    at every norm; those of the graphs are merged, then those of the batches, in float64.

    Args:
        model: Whose statistics are replaced; without dropout.
        work: Memory of a training step. Its tables are overwritten; they must hold a batch for all of its graphs.
    """

    def __init__(self, model: MoleculeModel, work: Workspace) -> None:
        self.model, self.work = model, work
        device, replicas = work.at.device, model.replicas
        self.batches = -(-work.data.num_graphs // work.graphs)
        self.launches = model.forward(work)
        self.before = model.flat.running.clone()
        shape = (replicas, 3 * model.layers * model.channels)
        self.n = torch.zeros(replicas, dtype=torch.float64, device=device)
        self.mean, self.squares = (torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(2))
        self.replay: Replay | None = None
        self.walks = self._of_walks()

    def __call__(self) -> None:
        """Replace the statistics."""
        work, running = self.work, self.model.flat.running
        self.before.copy_(running)
        order = torch.full((self.batches * work.graphs,), work.data.num_graphs)
        order[: work.data.num_graphs] = torch.arange(work.data.num_graphs)
        work.order[: self.batches] = order.view(self.batches, 1, work.graphs).to(work.order.device)
        self._reset()
        if self.replay is None:
            state = [running, self.n, self.mean, self.squares, work.at]
            self.replay = Replay(self._batch, work.at.device, state)
        for _ in range(self.batches):
            self.replay()
        running.copy_(self.before)
        layers, channels = self.model.layers, self.model.channels
        enough = (self.n >= 2).view(-1, 1, 1, 1)
        variance = self.squares / (self.n.unsqueeze(1) - 1).clamp(min=1)
        found = torch.stack([self.mean, variance], 1).view(-1, 2, 3 * layers, channels).transpose(1, 2)
        place = running[:, : 6 * layers * channels].view(-1, 3 * layers, 2, channels)
        place.copy_(torch.where(enough, found.to(running.dtype), place))
        if self.walks.numel():
            start = 6 * layers * channels
            own = running[:, start : start + self.walks.numel()]
            own.copy_(torch.where(enough.view(-1, 1), self.walks, own))

    def _reset(self) -> None:
        self.model.flat.running.copy_(self.before)
        for total in (self.n, self.mean, self.squares, self.work.at):
            total.zero_()

    def _batch(self) -> None:
        # A batch of fewer than two rows is to meet the old statistics.
        self.model.flat.running.copy_(self.before)
        run(self.launches)
        work = self.work
        for replica in range(self.model.replicas):
            # Copies of one shape, so that sums have the same bits whatever the number of replicas.
            own = slice(replica * work.graphs, (replica + 1) * work.graphs)
            parts = torch.stack([work.mixed_parts[:, 0, own], work.mixed_parts[:, 1, own], work.y_parts[1:, own]], 1)
            mean, squares = parts.double().permute(3, 2, 0, 1, 4).reshape(2, work.graphs, -1).unbind()
            batch = merge_moments(Moments(work.slots[own, NODES].double().unsqueeze(1), mean, squares))
            pairs = zip((self.n[replica], self.mean[replica], self.squares[replica]), batch, strict=True)
            n, mean, squares = (torch.stack(pair) for pair in pairs)
            total = merge_moments(Moments(n.unsqueeze(1), mean, squares))
            for kept, value in zip((self.n, self.mean, self.squares), total, strict=True):
                kept[replica] = value
        work.at += 1

    def _of_walks(self) -> Tensor:
        """Mean and variance of the encodings of all nodes, [2 S]: no weights come before them."""
        data = self.work.data
        counts = data.ptr.diff().double().unsqueeze(1)
        mean, squares = data.rwse_moments.double().unbind(1)
        n, mean, squares = merge_moments(Moments(counts, mean, squares))
        return torch.cat([mean, squares / (n - 1).clamp(min=1)]).to(data.rwse.dtype)
