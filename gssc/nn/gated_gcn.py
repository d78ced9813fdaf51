"""GatedGCN: message passing with a gate per edge and channel, and edge features that are updated too."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_positive, check_probability, check_shape
from gssc.nn.dropout import dropout
from gssc.nn.fused_norm import as_branch, fused_norm, norms_fuse
from gssc.nn.norm import BatchNorm, NormName, apply_norm, make_norm
from gssc.nn.plain_modules import plain_linears
from gssc.ops import EdgeNorm, EdgePlan, Origin, gated_gcn, new_seeds
from gssc.ops.norm.triton import move_running_statistics
from gssc.ops.triton_support import can_fuse, exporting

MERGED = 1 << 21  # numbers, N × C, up to which one product makes all four of what nodes tell, which is then kept


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

    On a GPU, all that happens on edges is one op (``gssc.ops.gated_gcn``), which keeps no tensor of size E × C but its
    output; layers that share edges should share ``plan``, which is ``gssc.ops.edge_plan(edge_index, N)``. Where new
    edge features are not needed, as after the last layer of a model, ``need_edges=False`` lets it return ``None``.
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
        plan: EdgePlan | None = None,
        need_edges: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        check_shape("x", x, None, self.channels)
        check_shape("edge_index", edge_index, 2, None)
        if can_fuse(x, edge_attr) and self._norm_fuses() and plain_linears(self.lin_edge):
            return self._fused(x, edge_index, edge_attr, node_mask, edge_mask, plan, need_edges)
        source, target = edge_index[0], edge_index[1]
        # index_select: its gradient is a sum of rows, that of x[source] a sort on a CPU.
        logits = self.lin_target(x).index_select(0, target) + self.lin_source(x).index_select(0, source)
        if edge_attr is not None:
            check_shape("edge_attr", edge_attr, edge_index.shape[1], self.channels)
            logits = logits + self.lin_edge(edge_attr)
        gate = torch.sigmoid(logits)
        message = gate * self.lin_neighbor(x).index_select(0, source)
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
        return dropout(F.relu(apply_norm(norm, hidden, mask)), self.dropout, self.training)

    def _told(self, x: Tensor) -> tuple[tuple[Tensor, Tensor | None, Tensor | None], Origin | None, Tensor | None]:
        """What the op takes of nodes, and where that comes from; and Ax, if the op does not add it.

        Where launches are what takes time, one product. Where memory is scarce, the op is told how to compute anew.
        """
        linears = (self.lin_target, self.lin_source, self.lin_neighbor)
        every = (*linears, self.lin_self)
        weights: list[Tensor] = [linear.weight for linear in every]
        biases: list[Tensor] = [linear.bias for linear in every]
        plain = plain_linears(*every) and all(bias is not None for bias in biases)
        # A limit on the nodes would become one of an exported program.
        if plain and not exporting() and x.numel() <= MERGED:
            return (F.linear(x, torch.cat(weights), torch.cat(biases)), None, None), None, None
        pairs = [part for linear in linears for part in (linear.weight, linear.bias)]
        told = (self.lin_target(x), self.lin_source(x), self.lin_neighbor(x))
        return told, Origin(x, *pairs) if plain else None, self.lin_self(x)

    def _norm_fuses(self) -> bool:
        """Whether the op can normalise edges itself: not over processes, nor where somebody watches the norm."""
        norm = self.norm_edge
        if isinstance(norm, nn.Identity):
            return True
        watched = bool(norm._forward_pre_hooks or norm._forward_hooks)
        return isinstance(norm, BatchNorm) and not norm.synchronized and not watched

    def _fused(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None,
        node_mask: Tensor | None,
        edge_mask: Tensor | None,
        plan: EdgePlan | None,
        need_edges: bool,
    ) -> tuple[Tensor, Tensor | None]:
        norm, batch = None, self.norm_edge
        if isinstance(batch, BatchNorm):
            assert batch.running_mean is not None
            assert batch.running_var is not None
            norm = EdgeNorm(batch.weight, batch.bias, batch.running_mean, batch.running_var, batch.eps, batch.training)
        linear = self.lin_edge if edge_attr is not None else None
        told, origin, own = self._told(x)
        out = gated_gcn(
            *told,
            edge_index,
            edge_attr,
            None if linear is None else linear.weight,
            None if linear is None else linear.bias,
            norm=norm,
            mask=edge_mask,
            residual=self.residual,
            eps=self.eps,
            dropout=self.dropout if self.training else 0.0,
            plan=plan,
            need_edges=need_edges,
            origin=origin,
            backend="fused",
        )
        if isinstance(batch, BatchNorm) and batch.training:
            assert out.statistics is not None
            state = (batch.running_mean, batch.running_var, batch.num_batches_tracked)
            move_running_statistics(out.statistics.unsqueeze(0), *state, None, None, None, batch.momentum)
        hidden = out.nodes if own is None else own + out.nodes
        return self._fused_node(x, hidden, node_mask), out.edges if need_edges else None

    def _fused_node(self, x: Tensor, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """The update of nodes."""
        if not norms_fuse([self.norm_node], self.training, x, hidden):
            node = self._finish(hidden, self.norm_node, mask)
            return x + node if self.residual else node
        p = self.dropout if self.training else 0.0
        seed = new_seeds(1, x.device)[0] if p else None
        branch = as_branch(self.norm_node, hidden, p, self.residual)
        return fused_norm(self.norm_node, [branch], x if self.residual else None, mask, seed, activation=True)
