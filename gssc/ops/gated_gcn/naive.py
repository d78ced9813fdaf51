"""GatedGCN between its Linears, edge by edge: the judge of every faster form."""

import torch
from torch import Tensor, nn

from gssc.ops.norm.naive import dropped


def gated_messages(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
    own: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    lin_edge: nn.Module | None,
    norm: nn.Module | None,
    mask: Tensor | None,
    residual: bool,
    eps: float,
    dropout: float,
    seed: Tensor | None,
    site: int,
) -> tuple[Tensor, Tensor]:
    """See ``gssc.ops.gated_gcn``."""
    logits = []
    total, gates = [[torch.zeros_like(row) for row in target] for _ in range(2)]
    for edge, (j, i) in enumerate(edge_index.T.tolist()):
        logit = target[i] + source[j]
        if edge_attr is not None and lin_edge is not None:
            logit = logit + lin_edge(edge_attr[edge])
        total[i] = total[i] + logit.sigmoid() * neighbor[j]
        gates[i] = gates[i] + logit.sigmoid()
        logits.append(logit)
    nodes = [t / (g + eps) for t, g in zip(total, gates, strict=True)]
    if own is not None:
        nodes = [a + h for a, h in zip(own, nodes, strict=True)]
    hidden = logits
    if norm is not None:
        real = [edge for edge in range(len(logits)) if mask is None or bool(mask[edge])]
        normed = norm(torch.stack([logits[edge] for edge in real]) if real else target[:0])
        hidden = [torch.zeros_like(logit) for logit in logits]
        for edge, row in zip(real, normed, strict=True):
            hidden[edge] = row
    update = dropped(torch.stack(hidden).relu() if hidden else target[:0], seed, site, dropout)
    edges = edge_attr + update if residual and edge_attr is not None else update
    return torch.stack(nodes) if nodes else target[:0], edges
