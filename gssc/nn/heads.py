"""Heads: from node features to predictions for nodes or for graphs."""

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn
from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool

from gssc.checks import check_choice, check_positive

Level = Literal["node", "graph"]
Pool = Literal["sum", "mean", "max"]
LEVELS = ("node", "graph")
POOLS = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}


class MLPHead(nn.Sequential):
    """An MLP whose width halves ``halvings`` times before the output: C → C/2 → C/4 → out for two.

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs.
        halvings: Number of hidden layers, each half as wide as the one before.
    """

    def __init__(self, channels: int, out_channels: int, halvings: int = 2) -> None:
        check_positive("out_channels", out_channels)
        widths = [max(1, channels // 2**i) for i in range(halvings + 1)]
        steps: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            steps += [nn.Linear(wide, narrow), nn.ReLU()]
        super().__init__(*steps, nn.Linear(widths[-1], out_channels))


class GraphHead(nn.Module):
    """Pool the nodes of every graph, then an MLP: [N, C], batch [N] -> [G, out].

    Args:
        channels: C, width of the input.
        out_channels: Number of outputs.
        pool: ``"sum"``, ``"mean"`` or ``"max"``; a graph without nodes pools to zero.
    """

    def __init__(self, channels: int, out_channels: int, pool: Pool = "mean") -> None:
        super().__init__()
        check_choice("pool", pool, POOLS)
        self.pool = pool
        self.mlp = MLPHead(channels, out_channels)

    def forward(self, x: Tensor, batch: Tensor | None, num_graphs: int) -> Tensor:
        return self.mlp(POOLS[self.pool](x, batch, num_graphs if batch is not None else None))
