"""Performer: softmax attention with a kernel of random features, linear in n."""

import math

import torch
from torch import Tensor, nn

from gssc.nn.global_part import GlobalPart
from gssc.ops.context import GraphContext
from gssc.ops.graph_sums import graph_pool
from gssc.ops.linear_attention import normalized_linear_attention

LEAST = 1e-4  # of every feature, so that no sum of weights is zero


class Performer(GlobalPart):
    r"""FAVOR+ attention among all nodes of a graph: what GPSConv calls Performer.

    .. math::
        h_u = W_o \frac{\sum_v \langle\varphi(q_u), \varphi(k_v)\rangle v_v}
        {\sum_v \langle\varphi(q_u), \varphi(k_v)\rangle}, \qquad
        \varphi(x) = \exp(\Omega \hat x - \|\hat x\|^2 / 2), \quad \hat x = x / d^{1/4}

    per head of d channels, with d ln d rows of Ω that are orthogonal in blocks and not trained; φ·φ is exp(q·k / √d) on
    average over draws of Ω. Features are scaled to at most 1 (queries by row, keys by graph), and 1e-4 is added. From
    `Rethinking Attention with Performers <https://arxiv.org/abs/2009.14794>`_. Equivariant to permutations of nodes.
    """

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__(channels, heads)
        width = channels // heads
        self.lin_qkv = nn.Linear(channels, 3 * channels)
        self.lin_out = nn.Linear(channels, channels)
        self.omega = nn.Buffer(torch.empty(max(width, int(width * math.log(width))), width))
        self.draw()

    def draw(self) -> None:
        """Rows as long as those of a Gaussian matrix, orthogonal in blocks of d."""
        count, width = self.omega.shape
        blocks = [torch.linalg.qr(torch.randn(width, width)).Q.t() for _ in range(-(-count // width))]
        self.omega.copy_(torch.cat(blocks)[:count] * torch.randn(count, width).norm(dim=1, keepdim=True))

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        q, k, v = self.split(self.lin_qkv(x), 3)
        q, k = (self._exponents(rows) for rows in (q, k))
        largest = graph_pool(k.detach().amax(2), context.batch, context.ptr, "max")
        q = torch.exp(q - q.detach().amax(2, keepdim=True)) + LEAST
        k = torch.exp(k - context.spread(largest).unsqueeze(2)) + LEAST
        return self.lin_out(normalized_linear_attention(q, k, v, context.ptr).flatten(1))

    def _exponents(self, rows: Tensor) -> Tensor:
        """Ω x̂ - |x̂|² / 2, [N, heads, features]."""
        scaled = rows * rows.shape[2] ** -0.25
        return scaled @ self.omega.t().to(rows.dtype) - scaled.square().sum(2, keepdim=True) / 2
