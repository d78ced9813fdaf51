"""GatedGCN between its Linears by gathering and adding rows: about ten tensors [E, C]."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from gssc.ops.norm import dropout


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
    drop: float,
) -> tuple[Tensor, Tensor]:
    """See ``gssc.ops.gated_gcn``; the modules are called."""

    def update(logits: Tensor) -> Tensor:
        if norm is not None:
            logits = norm(logits) if mask is None else norm(logits, mask)
        return dropout(logits.relu(), drop, True)

    return composed(target, source, neighbor, own, edge_index, edge_attr, lin_edge, update, residual, eps)


def composed(
    target: Tensor,
    source: Tensor,
    neighbor: Tensor,
    own: Tensor | None,
    edge_index: Tensor,
    edge_attr: Tensor | None,
    lin_edge: Callable[[Tensor], Tensor] | None,
    update: Callable[[Tensor], Tensor],
    residual: bool,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """The equations; ``update`` is what happens to ℓ on its way to e'."""
    j, i = edge_index[0], edge_index[1]
    # index_select: its gradient is a sum of rows, that of target[i] a sort on a CPU.
    logits = target.index_select(0, i) + source.index_select(0, j)
    if edge_attr is not None and lin_edge is not None:
        logits = logits + lin_edge(edge_attr)
    gate = torch.sigmoid(logits)
    message = gate * neighbor.index_select(0, j)
    zeros = message.new_zeros(target.shape)
    nodes = zeros.index_add(0, i, message) / (zeros.index_add(0, i, gate) + eps)
    edges = update(logits)
    if residual and edge_attr is not None:
        edges = edge_attr + edges
    return nodes if own is None else own + nodes, edges
