"""GatedGCN up to its norm of nodes by gathering and adding rows: about ten tensors [E, C]."""

from collections.abc import Callable

import torch
from torch import Tensor

from gssc.ops.gated_gcn.naive import Inputs
from gssc.ops.linears import linears
from gssc.ops.norm import dropout


def gated_messages(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """See ``gssc.ops.gated_gcn``; the modules are called."""
    x, tell, _, _, _, norm, mask, *_ = inputs

    def update(logits: Tensor) -> Tensor:
        if norm is not None:
            logits = norm(logits) if mask is None else norm(logits, mask)
        return dropout(logits.relu(), inputs.dropout, True)

    target, source, neighbor, own = linears(x, *tell)
    nodes, edges = composed(target, source, neighbor, inputs, update)
    return own + nodes, edges


def composed(
    target: Tensor, source: Tensor, neighbor: Tensor, inputs: Inputs, update: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The equations but for a; ``update`` is what happens to ℓ on its way to e'."""
    _, _, edge_index, edge_attr, lin_edge, *_ = inputs
    j, i = edge_index[0], edge_index[1]
    # index_select: its gradient is a sum of rows, that of target[i] a sort on a CPU.
    logits = target.index_select(0, i) + source.index_select(0, j)
    if edge_attr is not None and lin_edge is not None:
        logits = logits + lin_edge(edge_attr)
    gate = torch.sigmoid(logits)
    message = gate * neighbor.index_select(0, j)
    zeros = message.new_zeros(target.shape)
    nodes = zeros.index_add(0, i, message) / (zeros.index_add(0, i, gate) + inputs.eps)
    edges = update(logits)
    if inputs.residual and edge_attr is not None:
        edges = edge_attr + edges
    return nodes, edges
