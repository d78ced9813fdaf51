"""SGFormer's simple global attention: one product of all pairs, without softmax, linear in n."""

import torch
from torch import Tensor, nn

from gssc.nn.global_part import GlobalPart
from gssc.ops.context import GraphContext
from gssc.ops.graph_sums import segment_sum
from gssc.ops.linear_attention import linear_attention


class SimpleAttention(GlobalPart):
    r"""Linear attention whose queries and keys are divided by their Frobenius norms in each graph of n nodes.

    .. math::
        h = D^{-1} \Big(V + \frac1n \tilde Q (\tilde K^\top V)\Big), \qquad
        D = \mathrm{diag}\Big(1 + \frac1n \tilde Q (\tilde K^\top 1)\Big), \qquad
        \tilde Q = Q / \|Q\|_F, \quad \tilde K = K / \|K\|_F

    From `SGFormer <https://arxiv.org/abs/2306.10759>`_, which has one such layer beside a GNN; here each layer of the
    model has one. Equivariant to permutations of nodes.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.lin_qkv = nn.Linear(channels, 3 * channels)

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        q, k, v = self.split(self.lin_qkv(x), 3)
        squares = torch.cat([rows.square().sum(2) for rows in (q, k)], dim=1)
        of_q, of_k = segment_sum(squares, context.batch, context.ptr).split(1, dim=1)
        norms = (of_q * of_k).sqrt()
        sizes = context.ptr.diff().unsqueeze(1).to(norms.dtype)
        scale = context.spread(1 / (sizes * norms).clamp(min=1e-12))
        own = torch.cat([v.squeeze(1), torch.ones_like(v[:, 0, :1])], dim=1)
        both = own + scale * linear_attention(q, k, own.unsqueeze(1), context.ptr).squeeze(1)
        return both[:, :-1] / both[:, -1:].clamp(min=1e-6)
