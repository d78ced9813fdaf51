"""GatedGCN up to its norm of nodes by gathering and adding rows: about ten tensors [E, C]."""

from collections.abc import Callable

import torch
from torch import Tensor

from gssc.ops.gated_gcn.naive import Inputs
from gssc.ops.linears import linears
from gssc.ops.norm import begun_norm, dropout


def gated_messages(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """See ``gssc.ops.gated_gcn``; the modules are called."""
    x, tell, _, _, _, norm, mask, *_ = inputs

    def update(logits: Tensor) -> Callable[[], Tensor]:
        normed = (lambda: logits) if norm is None else begun_norm(norm, logits, mask)
        return lambda: dropout(normed().relu(), inputs.dropout, True)

    if inputs.own is None:
        target, source, neighbor, own = linears(x, *tell)
    else:
        source, neighbor = linears(x, *tell[1:3])
        target, own = linears(x[: inputs.own], tell[0], tell[3])
    nodes, edges = composed(target, source, neighbor, inputs, update)
    return own + nodes, edges


def composed(
    target: Tensor, source: Tensor, neighbor: Tensor, inputs: Inputs, update: Callable[[Tensor], Callable[[], Tensor]]
) -> tuple[Tensor, Tensor]:
    """The equations but for a; ``update`` begins, and ends when called, what happens to ℓ on its way to e'."""
    _, _, edge_index, edge_attr, lin_edge, *_ = inputs
    j, i = edge_index[0], edge_index[1]
    # index_select: its gradient is a sum of rows, that of target[i] a sort on a CPU.
    logits = target.index_select(0, i) + source.index_select(0, j)
    if edge_attr is not None and lin_edge is not None:
        logits = logits + lin_edge(edge_attr)
    updated = update(logits)
    gate = torch.sigmoid(logits)
    message = gate * neighbor.index_select(0, j)
    zeros = message.new_zeros(target.shape)
    nodes = zeros.index_add(0, i, message) / (zeros.index_add(0, i, gate) + inputs.eps)
    edges = updated()
    if inputs.residual and edge_attr is not None:
        edges = edge_attr + edges
    return nodes, edges
