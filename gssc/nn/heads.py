"""Heads: from node features to predictions for nodes or for graphs."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from gssc.checks import check_choice, check_positive
from gssc.ops import batch_to_ptr, segment_sum
from gssc.ops.triton_support import can_fuse

Level = Literal["node", "graph"]
HeadForm = Literal["halving", "wide", "linear"]
Pool = Literal["sum", "mean", "max"]
LEVELS = ("node", "graph")
HEAD_FORMS = ("halving", "wide", "linear")
POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class MLPHead(nn.Sequential):
    """From C channels to the outputs, with ReLU between linear maps.

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs.
        form: ``"halving"``: C → C/2 → C/4 → out; ``"wide"``: C → C → C → out; ``"linear"``: C → out.
    """

    def __init__(self, channels: int, out_channels: int, form: HeadForm = "halving") -> None:
        check_positive("out_channels", out_channels)
        check_choice("form", form, HEAD_FORMS)
        widths = [channels]
        if form != "linear":
            factor = 2 if form == "halving" else 1
            widths += [max(1, channels // factor), max(1, channels // factor**2)]
        steps: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            steps += [nn.Linear(wide, narrow), nn.ReLU()]
        super().__init__(*steps, nn.Linear(widths[-1], out_channels))


class GraphHead(nn.Module):
    """Pool the nodes of every graph, then an MLP: [N, C], batch [N] -> [G, out].

    On a GPU sums are made in a fixed order, so that results repeat bit by bit.

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs.
        pool: ``"sum"``, ``"mean"`` or ``"max"``; a graph without nodes pools to zero.
        form: Of the MLP, see ``MLPHead``.
    """

    def __init__(self, channels: int, out_channels: int, pool: Pool = "mean", form: HeadForm = "halving") -> None:
        super().__init__()
        check_choice("pool", pool, POOLS)
        self.pool = pool
        self.mlp = MLPHead(channels, out_channels, form)

    def forward(self, x: Tensor, batch: Tensor | None, num_graphs: int, ptr: Tensor | None = None) -> Tensor:
        """Predict; ``ptr`` [G + 1], where it is known, spares counting ``batch``."""
        return self.mlp(self._pooled(x, batch, num_graphs, ptr))

    def _pooled(self, x: Tensor, batch: Tensor | None, num_graphs: int, ptr: Tensor | None) -> Tensor:
        if batch is not None and self.pool == "max":
            # A maximum does not depend on the order. PyG's pool is the same, but on a GPU it warns.
            zeros = x.new_zeros(num_graphs, x.shape[1])
            return zeros.scatter_reduce(0, batch.unsqueeze(1).expand_as(x), x, "amax", include_self=False)
        if batch is None and x.shape[0] == 0:
            return x.new_zeros(1, x.shape[1])
        if batch is None or not can_fuse(x):
            return POOLS[self.pool](x, batch, num_graphs if batch is not None else None)
        if ptr is None:
            ptr = batch_to_ptr(batch, x.shape[0], num_graphs, x.device)
        total = segment_sum(x, batch, ptr)
        if self.pool == "sum":
            return total
        return total / torch.diff(ptr).clamp(min=1).unsqueeze(1).to(x.dtype)
