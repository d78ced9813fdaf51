"""The local part of a layer: message passing by name, as a module, or by a function that makes one.

GatedGCN is made here. GINE, GCN and PNA are PyG's; the first two sum over edges by ops of this package.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, GINEConv, PNAConv, SAGEConv

from gssc.checks import check_choice, check_positive, check_probability, check_shape, fail
from gssc.nn.norm import NormName, make_norm
from gssc.nn.reset import Resets
from gssc.ops.context import GraphContext, graph_context
from gssc.ops.gated_gcn import gated_messages
from gssc.ops.gine import gine_messages, neighbor_sum

Source = nn.Module | Callable[[int], nn.Module | None]
Local = Literal["gatedgcn", "gine", "gin", "gcn", "sage", "gat", "pna", "none"]
LOCALS: tuple[str, ...] = get_args(Local)
NODE_SITE, EDGE_SITE = 4, 5  # of dropout in GatedGCN; the layer around it has those below
AGGREGATORS = ["mean", "min", "max", "std"]
SCALERS = ["identity", "amplification", "attenuation"]


class GatedGCN(Resets, nn.Module):
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

    All of it is one op (``gssc.ops.gated_messages``), which on a GPU keeps no tensor of size E × C but its output.
    ``context`` (`GraphContext`) tells the masks of a padded batch, and which layer is the last: edge features that
    nobody reads come back as ``None``.
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
        tell = (self.lin_target, self.lin_source, self.lin_neighbor, self.lin_self)
        return gated_messages(
            x, tell, edge_index, edge_attr, self.lin_edge, self.norm_edge, norm_node=self.norm_node,
            mask=context.edge_mask, node_mask=context.node_mask, residual=self.residual, eps=self.eps,
            dropout=self.dropout, training=self.training, seed=context.seeds.get(self), site=EDGE_SITE,
            node_site=NODE_SITE, plan=lambda: context.plan, need_edges=context.final is not self, own=context.own,
        )  # fmt: skip


def _mlp(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels))


class GINE(GINEConv):
    r"""PyG's ``GINEConv`` with a two-layer MLP, also for graphs without edge features.

    .. math:: x_i \leftarrow \mathrm{MLP}\Big((1 + \epsilon) x_i + \sum_j \mathrm{ReLU}(x_j + e_{ij})\Big)

    The sum is one op (``gssc.ops.gine_messages``), which on a GPU stores nothing of size E × C; layers that share edges
    should share ``context`` (`GraphContext`), which sorts them once.

    Args:
        channels: Channels of nodes and edges.
    """

    def __init__(self, channels: int) -> None:
        check_positive("channels", channels)
        super().__init__(_mlp(channels))
        self.channels = channels

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, *, context: GraphContext | None = None
    ) -> Tensor:
        if context is None:
            check_shape("x", x, None, self.channels)
            context = graph_context(x.shape[0], edge_index=edge_index)
        h = gine_messages(x, edge_attr, edge_index, context.plan, eps=self.eps)
        return self.nn(h if context.own is None else h[: context.own])


class LocalGCN(GCNConv):
    r"""PyG's ``GCNConv`` C → C, with a sum of its own: it asks the device for no sizes, so that steps can be captured.

    .. math:: x_i \leftarrow W \Big(\frac{x_i}{d_i} + \sum_{j \neq i} \frac{x_j}{\sqrt{d_i d_j}}\Big) + b

    over edges from j to i; d_i is one more than their number. A loop that a node already has counts as the one that is
    added. The sum is one op (``gssc.ops.neighbor_sum``) that stores nothing of size E × C; layers that share edges
    should share ``context`` (`GraphContext`), which sorts them once. Weighted edges go PyG's way.

    Args:
        channels: Channels of nodes.
    """

    def __init__(self, channels: int) -> None:
        check_positive("channels", channels)
        super().__init__(channels, channels)
        self.channels = channels

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, *, context: GraphContext | None = None
    ) -> Tensor:
        if context is None:
            check_shape("x", x, None, self.channels)
            context = graph_context(x.shape[0], edge_index=edge_index)
        if edge_weight is not None:
            return super().forward(x, edge_index, edge_weight)
        return averaged(self.lin(x), edge_index, context) + self.bias


def averaged(x: Tensor, edge_index: Tensor, context: GraphContext) -> Tensor:
    r"""What GCN does to features: :math:`x_i / d_i + \sum_{j \neq i} x_j / \sqrt{d_i d_j}`, [N, C]; see `LocalGCN`."""
    own = x.shape[0]
    x, context = context.begin_extend(x)()
    source, target = edge_index[0], edge_index[1]
    counts = torch.zeros(2, x.shape[0], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    loops, entering = counts.index_add(1, target, torch.stack([source == target, source >= 0]).to(counts.dtype))
    others = entering - loops if context.entering is None else context.entering.to(counts.dtype)
    scale = (others + 1).rsqrt().to(x.dtype).unsqueeze(1)
    h = scale * x
    # Each node once itself, whatever loops are among its edges.
    return (scale * (neighbor_sum(h, edge_index, context.plan) + (1 - loops).to(h.dtype).unsqueeze(1) * h))[:own]


class LocalPNA(PNAConv):
    r"""PyG's ``PNAConv``: four aggregations of the messages, each at three scales of the degree d.

    .. math::
        \hat x_i = \{1,\; s_i,\; s_i^{-1}\} \otimes
        \{\mathrm{mean}, \min, \max, \mathrm{std}\}_j\, \mathrm{Linear}(x_i, x_j, e_{ij}), \qquad
        x_i \leftarrow \mathrm{Linear}(\mathrm{Linear}(x_i, \hat x_i))

    with :math:`s_i = \log(d_i + 1) / \mathrm{mean} \log(d + 1)`, the mean over the nodes of the training set.
    From `Principal Neighbourhood Aggregation for Graph Nets <https://arxiv.org/abs/2004.05718>`_.

    Args:
        channels: Channels of nodes and edges.
        degree_histogram: Of the nodes of the training set: how many have 0, 1, 2, … incoming edges.
        edge_features: Whether ``forward`` gets ``edge_attr`` [E, C].
    """

    def __init__(self, channels: int, degree_histogram: Sequence[int], edge_features: bool = False) -> None:
        check_positive("channels", channels)
        counts = torch.as_tensor(degree_histogram, device="cpu")
        if counts.dim() != 1 or not counts.numel() or bool((counts < 0).any()) or not bool(counts.any()):
            fail("degree_histogram", "how many nodes have 0, 1, 2, … neighbours", str(degree_histogram))
        if not bool(counts[1:].any()):
            # No edge in the training set: any mean degree but zero, which would divide zero messages by zero, will do.
            counts = torch.tensor([0, 1], device="cpu")
        super().__init__(channels, channels, AGGREGATORS, SCALERS, counts, edge_dim=channels if edge_features else None)


def make_locals(
    local: Local | Source,
    layers: int,
    channels: int,
    dropout: float = 0.0,
    norm: NormName = "batch",
    edge_features: bool = False,
    degree_histogram: Sequence[int] | None = None,
) -> Iterator[nn.Module | None]:
    """A convolution C → C per layer, or ``None`` each for ``"none"``.

    Args:
        local: A name, a module, which serves the first layer and fresh copies of it the others, or a function of the
            number of channels that makes one. GatedGCN, GINE, GAT and PNA use edge features where there are any; GIN,
            GCN and SAGE have no place for them.
        layers: How many.
        channels: C.
        dropout: Dropout inside GatedGCN.
        norm: Normalisation inside GatedGCN.
        edge_features: Whether there are any.
        degree_histogram: Of the training set, which PNA needs.
    """
    if not isinstance(local, str):
        return copies("local", local, layers, channels)
    check_choice("local", local, LOCALS)
    if local == "pna" and degree_histogram is None:
        fail("degree_histogram", "that of the training set, for local='pna'", "None")
    by_name: dict[str, Callable[[int], nn.Module | None]] = {
        "gatedgcn": lambda c: GatedGCN(c, dropout, norm),
        "gine": GINE,
        "gin": lambda c: GINConv(_mlp(c)),
        "gcn": LocalGCN,
        "sage": lambda c: SAGEConv(c, c),
        "gat": lambda c: GATConv(c, c, edge_dim=c),
        "pna": lambda c: LocalPNA(c, degree_histogram or (), edge_features),
        "none": lambda _: None,
    }
    return copies("local", by_name[local], layers, channels)


def copies(name: str, source: Source, count: int, channels: int) -> Iterator[nn.Module | None]:
    """``count`` modules: ``source(channels)`` each, or the module itself and copies of it with weights of their own.

    Copies of a module that has ``reset_parameters`` draw their weights anew; others start with its weights.
    """
    for number in range(count):
        if isinstance(source, nn.Module):
            part: nn.Module | None = copy.deepcopy(source) if number else source
            reset = getattr(part, "reset_parameters", None)
            if number and reset is not None:
                reset()
        elif callable(source):
            part = source(channels)
            if part is not None and not isinstance(part, nn.Module):
                fail(name, "a function that returns a module", type(part).__name__)
        else:
            fail(name, "a name, a module or a function that makes one of its channels", repr(source))
        yield part
