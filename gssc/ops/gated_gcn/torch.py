"""GatedGCN between its Linears by gathering and adding rows: about ten tensors [E, C]."""

import torch
import torch.nn.functional as F
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
    dropout: float = 0.0,
) -> GatedOutput:
    """See ``gssc.ops.gated_gcn``."""
    j, i = edge_index
    logits = target[i] + source[j]
    if edge_attr is not None and weight is not None:
        logits = logits + F.linear(edge_attr, weight, bias)
    gate = torch.sigmoid(logits)
    zeros = torch.zeros_like(target)
    nodes = zeros.index_add(0, i, gate * neighbor[j]) / (zeros.index_add(0, i, gate) + eps)
    count, mean, squares = logits.new_zeros(()), *logits.new_zeros(2, logits.shape[1])
    hidden = logits
    if norm is not None:
        center, variance = norm.mean, norm.variance
        real = torch.ones_like(logits[:, :1], dtype=torch.bool) if mask is None else mask.unsqueeze(1)
        if norm.training:
            count = real.sum().to(logits.dtype)
            mean = torch.where(real, logits, 0.0).sum(0) / count.clamp(min=1)
            squares = torch.where(real, logits - mean, 0.0).square().sum(0)
            enough = count >= 2
            center = torch.where(enough, mean, center)
            variance = torch.where(enough, squares / count.clamp(min=1), variance)
        hidden = (logits - center) * torch.rsqrt(variance + norm.eps) * norm.scale + norm.shift
        hidden = torch.where(real, hidden, 0.0)
    edges = F.dropout(hidden.relu(), dropout)
    if residual and edge_attr is not None:
        edges = edge_attr + edges
    return GatedOutput(nodes, edges, count.detach(), mean.detach(), squares.detach())
