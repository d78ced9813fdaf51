"""GRED counts cycles: sums by distance, read by a linear recurrence, in the place of `GSSConv`.

    python examples/gred.py --recipe cycles-4 --data-root data

A global part of one's own (docs/own_layers.md), trained by the loop of `subgraph_baselines.py` beside it; in
`tests/examples/test_gred.py` it is compared with its formula, written as loops over nodes and distances.
"""

import math

import subgraph_baselines
import torch
from subgraph_baselines import make_mlp, rooted_subgraphs, summed
from torch import Tensor, nn

import gssc
from gssc.nn import GraphContext


class GRED(nn.Module):
    r"""One layer of GRED, https://arxiv.org/abs/2312.01538: sums by distance, read by a linear recurrence from afar.

    .. math::
        \hat x_{vk} = \mathrm{MLP}_2 \sum_{d(u,v)=k} \mathrm{MLP}_1(x_u), \qquad
        s_v = \sum_{k=0}^{K} \Lambda^k \gamma \odot W_{in} \hat x_{vk}, \qquad h_v = \mathrm{MLP}_3(\Re(W_{out} s_v))

    with Λ diagonal, complex, |Λ| = exp(-exp(ν)) < 1. For ``glob`` of `gssc.GSSC`, see ``docs/own_layers.md``.
    """

    def __init__(self, channels: int, hops: int) -> None:
        super().__init__()
        self.hops = hops
        self.inner, self.outer, self.last = (make_mlp(channels, channels, channels) for _ in range(3))
        size = torch.rand(channels)  # of |Λ|², then ν, θ and γ as linear recurrent units begin
        self.nu = nn.Parameter(torch.log(-0.5 * torch.log(size.clamp(0.01, 0.99))))
        self.theta = nn.Parameter(2 * math.pi * torch.rand(channels))
        self.gamma = nn.Parameter(torch.log1p(-size.clamp(0.01, 0.99)) / 2)
        self.lin_in = nn.Linear(channels, 2 * channels, bias=False)
        self.lin_out = nn.Linear(2 * channels, channels, bias=False)

    def forward(self, x: Tensor, phi: None, vectors: None, batch: Tensor | None, context: GraphContext) -> Tensor:
        subgraphs = context.carried.get("subgraphs")
        if subgraphs is None:
            subgraphs = context.carried["subgraphs"] = rooted_subgraphs(context.edge_index, len(x), self.hops)
        rows = subgraphs.roots * (self.hops + 1) + subgraphs.distance
        sums = summed(self.inner(x)[subgraphs.nodes], rows, len(x) * (self.hops + 1))
        real, imaginary = self.lin_in(self.outer(sums).view(len(x), -1, x.shape[1])).chunk(2, dim=2)
        steps = torch.arange(self.hops + 1, device=x.device).unsqueeze(1)
        powers = torch.exp(steps * torch.complex(-self.nu.exp(), self.theta))  # Λ^k, [K + 1, C]
        state = (torch.complex(real, imaginary) * self.gamma.exp() * powers).sum(1)
        return self.last(self.lin_out(torch.cat([state.real, state.imag], dim=1)))


def make_model(name: str, channels: int, layers: int, hops: int) -> gssc.GSSC:
    """GRED in every layer, nothing beside it."""
    settings = {"local": "none", "glob": lambda channels: GRED(channels, hops), "level": "node"}
    return gssc.GSSC(1, channels, layers, phi_channels=1, norm="layer", **settings)


def main(arguments: list[str] | None = None) -> float:
    """Train on a dataset of cycles; the test error."""
    return subgraph_baselines.main(arguments, make_model, ("gred",), __doc__)


if __name__ == "__main__":
    main()
