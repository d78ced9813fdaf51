"""GatedGCN between its Linears, edge by edge: the judge of every faster form. No dropout."""

import torch
from torch import Tensor

from gssc.ops.gated_gcn.types import EdgeNorm, GatedOutput


def gated_gcn(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    norm: EdgeNorm | None,
    mask: Tensor | None,
    residual: bool,
    eps: float,
) -> GatedOutput:
    """See ``gssc.ops.gated_gcn``."""
    nodes, channels = target.shape
    logits = []
    total, gates = [[torch.zeros_like(row) for row in target] for _ in range(2)]
    for edge, (j, i) in enumerate(edge_index.T.tolist()):
        logit = target[i] + source[j]
        if edge_attr is not None and weight is not None and bias is not None:
            logit = logit + weight @ edge_attr[edge] + bias
        total[i] = total[i] + logit.sigmoid() * neighbor[j]
        gates[i] = gates[i] + logit.sigmoid()
        logits.append(logit)
    real = [edge for edge in range(len(logits)) if mask is None or bool(mask[edge])]
    count = len(real)
    mean = squares = target.new_zeros(channels)
    if norm is not None and norm.training and count:
        mean = torch.stack([logits[edge] for edge in real]).mean(0)
        squares = torch.stack([(logits[edge] - mean).square() for edge in real]).sum(0)
    edges = []
    for edge, logit in enumerate(logits):
        hidden = logit
        if norm is not None:
            own = norm.training and count >= 2
            center, variance = (mean, squares / count) if own else (norm.mean, norm.variance)
            hidden = (logit - center) / (variance + norm.eps).sqrt() * norm.scale + norm.shift
            hidden = hidden if edge in real else torch.zeros_like(hidden)
        update = hidden.relu()
        edges.append(edge_attr[edge] + update if residual and edge_attr is not None else update)
    means = [t / (g + eps) for t, g in zip(total, gates, strict=True)]
    empty = target.new_zeros(0, channels)
    counted = norm is not None and norm.training
    return GatedOutput(
        torch.stack(means) if nodes else empty,
        torch.stack(edges) if edges else empty,
        target.new_tensor(float(count if counted else 0)),
        mean.detach(),
        squares.detach(),
    )
