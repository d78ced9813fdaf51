"""GatedGCN up to its norm of nodes, edge by edge: the judge of every faster form."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gssc.ops.random import dropped


class Inputs(NamedTuple):
    """Arguments of ``gssc.ops.gated_messages``, checked, as every form takes them."""

    x: Tensor
    tell: Sequence[nn.Module]
    edge_index: Tensor
    edge_attr: Tensor | None
    lin_edge: Callable[..., Any] | None
    norm: Callable[..., Any] | None = None
    mask: Tensor | None = None  # None, too, where the norm looks at no other rows
    residual: bool = True
    eps: float = 1e-6
    dropout: float = 0.0  # what it is here and now: zero where nothing trains
    seed: Tensor | None = None
    site: int = 0
    own: int | None = None


def gated_messages(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """See ``gssc.ops.gated_gcn``."""
    x, tell, edge_index, edge_attr, lin_edge, norm, mask, *_ = inputs
    target, source, neighbor, own = (module(x) for module in tell)
    logits = []
    total, gates = [[torch.zeros_like(row) for row in target] for _ in range(2)]
    for edge, (j, i) in enumerate(edge_index.T.tolist()):
        logit = target[i] + source[j]
        if edge_attr is not None and lin_edge is not None:
            logit = logit + lin_edge(edge_attr[edge])
        total[i] = total[i] + logit.sigmoid() * neighbor[j]
        gates[i] = gates[i] + logit.sigmoid()
        logits.append(logit)
    nodes = [a + t / (g + inputs.eps) for a, t, g in zip(own, total, gates, strict=True)]
    hidden = logits
    if norm is not None:
        real = [edge for edge in range(len(logits)) if mask is None or bool(mask[edge])]
        normed = norm(torch.stack([logits[edge] for edge in real]) if real else target[:0])
        hidden = [torch.zeros_like(logit) for logit in logits]
        for edge, row in zip(real, normed, strict=True):
            hidden[edge] = row
    rows = torch.stack(hidden).relu() if hidden else target[:0]
    edges = dropped(rows, inputs.seed, inputs.site, inputs.dropout)
    if inputs.residual and edge_attr is not None:
        edges = edge_attr + edges
    return torch.stack(nodes)[: inputs.own] if nodes else target[:0], edges
