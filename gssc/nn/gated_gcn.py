"""GatedGCN: message passing with a gate per edge and channel, and edge features that are updated too."""

from torch import Tensor, nn

from gssc.checks import check_positive, check_probability, check_shape
from gssc.nn.norm import NormName, make_norm
from gssc.ops.context import GraphContext, graph_context
from gssc.ops.gated_gcn import gated_messages
from gssc.ops.linears import linears
from gssc.ops.norm import Branch, residual_norm

NODE_SITE, EDGE_SITE = 4, 5  # of dropout; the layer around it has those below


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
        x [N, C], edge_index [2, E], edge_attr [E, C] or None -> x [N, C], edge_attr [E, C]

    All that happens on edges is one op (``gssc.ops.gated_messages``), which on a GPU keeps no tensor of size E × C but
    its output. ``context`` (`GraphContext`) tells the masks of a padded batch, and which layer is the last: edge
    features that nobody reads come back as ``None``.
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
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, *, context: GraphContext | None = None
    ) -> tuple[Tensor, Tensor | None]:
        if context is None:
            check_shape("x", x, None, self.channels)
            context = graph_context(x.shape[0], edge_index=edge_index)
        seed = context.seeds.get(self)
        to_edges = (self.lin_target, self.lin_source, self.lin_neighbor)
        t, s, n, a = linears(x, *to_edges, self.lin_self)
        nodes, edges = gated_messages(
            t, s, n, a, edge_index, edge_attr, self.lin_edge, self.norm_edge,
            mask=context.edge_mask, residual=self.residual, eps=self.eps, dropout=self.dropout, training=self.training,
            seed=seed, site=EDGE_SITE, plan=lambda: context.plan, need_edges=context.final is not self,
            origin=(x, to_edges),
        )  # fmt: skip
        update = Branch(nodes, self.norm_node, self.dropout, self.residual)
        mask, training = context.node_mask, self.training
        return residual_norm(x, [update], mask, training=training, seed=seed, site=NODE_SITE, activation=True), edges
