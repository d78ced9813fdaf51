"""GatedGCN: message passing with a gate per edge and channel, and edge features that are updated too."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_positive, check_probability, check_shape
from gssc.nn.norm import NormName, apply_norm, make_norm


class GatedGCN(nn.Module):
    r"""Residual gated graph convolution that updates edges.

    From `Residual Gated Graph ConvNets <https://arxiv.org/abs/1711.07553>`_, in the form of `Benchmarking Graph Neural
    Networks <https://arxiv.org/abs/2003.00982>`_.

    For an edge from node j to node i, with gates σ:

    .. math::
        \hat e_{ij} = C e_{ij} + D x_i + E x_j, \qquad \sigma_{ij} = \mathrm{sigmoid}(\hat e_{ij})

        \hat x_i = A x_i + \frac{\sum_j \sigma_{ij} \odot B x_j}{\sum_j \sigma_{ij} + \epsilon}

        x_i \leftarrow x_i + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(\hat x_i))), \qquad
        e_{ij} \leftarrow e_{ij} + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(\hat e_{ij})))

    Without edge features the C term and the edge residual are left out, and edge features appear in the output.

    Args:
        channels: Channels of nodes and edges.
        dropout: Dropout probability of both updates.
        norm: ``"batch"``, ``"layer"`` or ``"none"``.
        residual: Add the input to the output, for nodes and edges.

    Shapes:
        x [N, C], edge_index [2, E], edge_attr [E, C] or None -> x [N, C], edge_attr [E, C]; masks [N] and [E] of real
        nodes and edges where the batch is padded
    """

    def __init__(
        self, channels: int, dropout: float = 0.0, norm: NormName = "batch", residual: bool = True, eps: float = 1e-6
    ) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_probability("dropout", dropout)
        self.channels, self.dropout, self.residual, self.eps = channels, dropout, residual, eps
        self.lin_self = nn.Linear(channels, channels)
        self.lin_neighbor = nn.Linear(channels, channels)
        self.lin_edge = nn.Linear(channels, channels)
        self.lin_target = nn.Linear(channels, channels)
        self.lin_source = nn.Linear(channels, channels)
        self.norm_node = make_norm(norm, channels)
        self.norm_edge = make_norm(norm, channels)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        node_mask: Tensor | None = None,
        edge_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        check_shape("x", x, None, self.channels)
        check_shape("edge_index", edge_index, 2, None)
        source, target = edge_index[0], edge_index[1]
        logits = self.lin_target(x)[target] + self.lin_source(x)[source]
        if edge_attr is not None:
            check_shape("edge_attr", edge_attr, edge_index.shape[1], self.channels)
            logits = logits + self.lin_edge(edge_attr)
        gate = torch.sigmoid(logits)
        message = gate * self.lin_neighbor(x)[source]
        zeros = message.new_zeros(x.shape[0], self.channels)
        total = zeros.index_add(0, target, message)
        weight = zeros.index_add(0, target, gate)
        node = self._finish(self.lin_self(x) + total / (weight + self.eps), self.norm_node, node_mask)
        edge = self._finish(logits, self.norm_edge, edge_mask)
        if self.residual:
            node = x + node
            edge = edge if edge_attr is None else edge_attr + edge
        return node, edge

    def _finish(self, hidden: Tensor, norm: nn.Module, mask: Tensor | None) -> Tensor:
        return F.dropout(F.relu(apply_norm(norm, hidden, mask)), self.dropout, self.training)
