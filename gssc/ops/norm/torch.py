"""Norms of residuals by PyTorch's ops from given statistics: what second derivatives are made of."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.ops.relu_dropout.naive import dropped


def residual_norm(
    rows: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    dropouts: Sequence[float],
    residuals: Sequence[bool],
    x: Tensor | None,
    mask: Tensor | None,
    seed: Tensor | None,
    stats: Tensor,
    eps: float,
    activation: bool,
    site: int,
) -> Tensor:
    """The op, differentiable through statistics of the batch; ``stats`` [B, 5, C] has those that count otherwise."""
    total: Tensor | None = None
    for number, h in enumerate(rows):
        hidden = h.to(stats.dtype)
        if not activation:
            hidden = dropped(hidden, seed, site + number, dropouts[number])
            hidden = hidden + x if x is not None and residuals[number] else hidden
        real = torch.ones_like(hidden[:, :1], dtype=torch.bool) if mask is None else mask.unsqueeze(1)
        mean, inverse, _, _, n = stats[number]
        own = torch.where(real, hidden, 0.0).sum(0) / n.clamp(min=1)
        squares = torch.where(real, hidden - own, 0.0).square().sum(0)
        enough = n >= 2
        scale = torch.where(enough, torch.rsqrt(squares / n.clamp(min=1) + eps), inverse)
        part = (hidden - torch.where(enough, own, mean)) * scale * weights[number] + biases[number]
        part = torch.where(real, part, 0.0)
        total = part if total is None else total + part
    assert total is not None
    if activation:
        total = dropped(total.relu(), seed, site, dropouts[0])
        total = total + x if x is not None and residuals[0] else total
    return total
