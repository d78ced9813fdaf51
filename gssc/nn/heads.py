"""Heads: from node features to predictions for nodes or for graphs."""

from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from gssc.checks import check_choice, check_positive
from gssc.nn.context import GraphContext
from gssc.ops import graph_pool

Level = Literal["node", "graph"]
HeadForm = Literal["halving", "wide", "linear"]
Pool = Literal["sum", "mean", "max"]
LEVELS = ("node", "graph")
HEAD_FORMS = ("halving", "wide", "linear")
POOLS = ("sum", "mean", "max")


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
    """Pool the nodes of every graph, then an MLP: [N, C] -> [G, out].

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

    def forward(self, x: Tensor, context: GraphContext) -> Tensor:
        return self.mlp(graph_pool(x, context.batch, context.ptr, self.pool))
