"""Graph-Mamba-I: the nodes of a graph in the order of their degrees, read by a selective state space model."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.nn.global_part import GlobalPart
from gssc.ops.context import GraphContext
from gssc.ops.scan import selective_scan

WIDTH = 4  # of the convolution
LEAST, MOST = 1e-3, 1e-1  # lengths of steps in the beginning
GOLDEN = (5**0.5 - 1) / 2  # whose multiples, modulo 1, are spread evenly


class GraphMamba(GlobalPart):
    r"""Mamba along the nodes of each graph, sorted by degree plus noise in [0, 1), the largest last.

    .. math::
        (u, g) = W_{in} x, \qquad u \leftarrow \mathrm{SiLU}(\mathrm{conv}(u)), \qquad
        (\delta, b, c) = W_x u, \qquad \delta \leftarrow \mathrm{softplus}(W_\delta \delta + \beta)

        h_t = \exp(\delta_t A) \odot h_{t-1} + (\delta_t \odot u_t) b_t^\top, \qquad
        y_t = h_t c_t + D \odot u_t, \qquad \mathrm{out} = W_{out}(y \odot \mathrm{SiLU}(g))

    with a causal convolution per channel; state and convolution begin anew in every graph. From `Mamba
    <https://arxiv.org/abs/2312.00752>`_ and `Graph-Mamba <https://arxiv.org/abs/2402.00789>`_, whose sizes these are.

    **Not** equivariant to permutations: among nodes of one degree noise decides. In training it is drawn in every call;
    in evaluation outputs are the mean over ``orders`` whose noise is a function of the numbers of the nodes, so that
    they repeat and do not depend on the rest of the batch.

    Args:
        state: S, numbers that every channel remembers.
        orders: Of which the mean is taken in evaluation.
    """

    def __init__(self, channels: int, state: int = 16, orders: int = 5) -> None:
        super().__init__(channels)
        self.state, self.orders = state, orders
        self.rank = -(-channels // 16)
        self.lin_in = nn.Linear(channels, 2 * channels, bias=False)
        self.conv = nn.Conv1d(channels, channels, WIDTH, groups=channels)
        self.lin_select = nn.Linear(channels, self.rank + 2 * state, bias=False)
        self.lin_step = nn.Linear(self.rank, channels)
        self.lin_out = nn.Linear(channels, channels, bias=False)
        self.log_rates = nn.Parameter(torch.empty(channels, state))
        self.skip = nn.Parameter(torch.empty(channels))
        self.draw()

    @torch.no_grad()
    def draw(self) -> None:
        """Rates of decay 1 … S, lengths of steps log-uniform."""
        nn.init.uniform_(self.lin_step.weight, -(self.rank**-0.5), self.rank**-0.5)
        lengths = torch.exp(torch.rand(self.channels) * math.log(MOST / LEAST) + math.log(LEAST))
        self.lin_step.bias.copy_(lengths + torch.log(-torch.expm1(-lengths)))
        self.log_rates.copy_(torch.arange(1.0, self.state + 1).log().expand_as(self.log_rates))
        nn.init.ones_(self.skip)

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        runs, nodes = (1 if self.training else self.orders), context.nodes
        order: Tensor | None = None if self.training else context.carried.get(f"{runs} orders")
        if order is None:
            order = context.carried[f"{runs} orders"] = self._orders(context, runs)
        shift = torch.arange(runs, device=x.device).unsqueeze(1) * nodes
        ptr = torch.cat([(context.ptr[:-1] + shift).flatten(), shift[-1:, 0] + nodes])
        u, gate = self.lin_in(x).index_select(0, order.flatten()).chunk(2, dim=1)
        within = torch.arange(nodes, device=x.device) - context.spread(context.ptr[:-1])
        u = F.silu(self._convolved(u, within.repeat(runs)))
        step, b, c = self.lin_select(u).split([self.rank, self.state, self.state], dim=1)
        step = F.softplus(self.lin_step(step))
        y = selective_scan(u, step, -torch.exp(self.log_rates), b, c, ptr)
        y = (y + self.skip * u) * F.silu(gate)
        y = torch.zeros_like(y).index_copy(0, (order + shift).flatten(), y)  # back to where the nodes stood
        return self.lin_out(y.unflatten(0, (runs, nodes)).mean(0))

    def _orders(self, context: GraphContext, runs: int) -> Tensor:
        """Nodes of each graph by degree plus noise, graph after graph, [runs, N]."""
        degree, ptr = context.degree.double(), context.ptr
        if self.training:
            noise = torch.rand(runs, context.nodes, dtype=torch.float64, device=ptr.device)
        else:
            node = torch.arange(context.nodes, device=ptr.device) - context.spread(ptr[:-1])
            noise = (node + 1) * (torch.arange(1, runs + 1, device=ptr.device).unsqueeze(1) * GOLDEN) % 1.0
        order = torch.argsort(degree + noise, dim=1)
        if context.batch is None:
            return order
        return order.gather(1, torch.argsort(context.batch[order], dim=1, stable=True))

    def _convolved(self, u: Tensor, within: Tensor) -> Tensor:
        """The convolution with what comes before in the same graph; ``within``: how much that is, for each node."""
        taps = F.pad(u, (0, 0, WIDTH, 0)).unfold(0, WIDTH, 1)[1:]  # [N, C, WIDTH], the node itself last
        there = within.unsqueeze(1) >= torch.arange(WIDTH - 1, -1, -1, device=u.device)
        taps = taps.where(there.unsqueeze(1), 0.0)
        return (taps * self.conv.weight.squeeze(1)).sum(2) + self.conv.bias  # type: ignore[operator]
