"""Polynormer's global attention: linear, with sigmoid kernels, times the node's own features."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.nn.global_part import GlobalPart
from gssc.ops.context import GraphContext
from gssc.ops.linear_attention import normalized_linear_attention


class PolynormerAttention(GlobalPart):
    r"""Gated linear attention: each layer doubles the degree of the polynomial that nodes are of their features.

    .. math::
        h = \mathrm{ReLU}\big(W_o \big(\mathrm{LN}(A V) \odot (W_h x + \sigma(\beta))\big)\big), \qquad
        A_{uv} = \frac{\langle\sigma(q_u), \sigma(k_v)\rangle}{\sum_w \langle\sigma(q_u), \sigma(k_w)\rangle}

    with σ the sigmoid and β trained. From `Polynormer <https://arxiv.org/abs/2403.01232>`_. Equivariant to
    permutations of nodes.
    """

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__(channels, heads)
        self.lin_in = nn.Linear(channels, 4 * channels)
        self.norm = nn.LayerNorm(channels)
        self.lin_out = nn.Linear(channels, channels)
        self.beta = nn.Parameter(torch.empty(channels))
        self.draw()

    def draw(self) -> None:
        nn.init.zeros_(self.beta)

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        q, k, v, own = self.split(self.lin_in(x), 4)
        attended = normalized_linear_attention(q.sigmoid(), k.sigmoid(), v, context.ptr).flatten(1)
        return F.relu(self.lin_out(self.norm(attended) * (own.flatten(1) + self.beta.sigmoid())))
