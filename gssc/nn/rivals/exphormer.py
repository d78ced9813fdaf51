"""Exphormer: attention along edges, those of the graph and of an expander, and through a virtual node."""

import torch
from torch import Tensor, nn

from gssc.checks import fail
from gssc.nn.global_part import GlobalPart
from gssc.ops.context import GraphContext, edge_plan
from gssc.ops.graph_sums import gathered, segment_sum

EDGE, EXPANDER, TO_VIRTUAL, FROM_VIRTUAL = range(4)  # kinds of edges


class Exphormer(GlobalPart):
    r"""Sparse attention along the edges of the graph, of a random regular graph, and to and from a virtual node.

    .. math::
        h_u = \frac{\sum_v w_{uv} V x_v}{\sum_v w_{uv}}, \qquad
        w_{uv} = \exp\Big(\frac1{\sqrt d} \langle Q x_u, K x_v \odot E e_{uv}\rangle\Big)

    per head of d channels, over v from which an edge leads to u; exponents are cut to ±5. e is the feature of an edge
    of the graph, and a learned vector for edges without features and for each other kind. The virtual node of a graph
    does the same over all nodes, and they see it in the next layer. From `Exphormer
    <https://arxiv.org/abs/2303.06147>`_.

    Equivariant to permutations that move the expander with the nodes; another expander gives other outputs. Needs
    ``context.expander``, from the transform `gssc.ExpanderGraph`.

    Args:
        first: Whether it is the first layer, with which virtual nodes begin.
    """

    reads_edges = True

    def __init__(self, channels: int, heads: int = 4, first: bool = True) -> None:
        super().__init__(channels, heads)
        self.lin_qkv = nn.Linear(channels, 3 * channels, bias=False)
        self.lin_edge = nn.Linear(channels, channels, bias=False)
        self.kinds = nn.Embedding(4, channels)
        self.virtual = nn.Embedding(1, channels) if first else None

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        if context.expander is None or context.edge_index is None:
            fail("expander", "expander graphs (apply gssc.ExpanderGraph to the data)", "None")
        if "edges" not in context.carried:
            context.carried["edges"] = all_edges(context, context.expander, context.edge_index)
        targets, sources, (places,) = context.carried["edges"]
        virtual = context.carried.get("virtual")
        if virtual is None:
            if self.virtual is None:
                fail("first", "True, for a layer before which there is no other", "False")
            virtual = self.virtual.weight.expand(context.graphs, -1)
        q, k, v = self.split(self.lin_qkv(torch.cat([x, virtual])), 3)
        kinds = self.lin_edge(self.kinds.weight).unflatten(1, (1, self.heads, -1))
        if context.edge_attr is not None:
            kinds = torch.cat([torch.ones_like(kinds[:1]), kinds[1:]])
        keys = gathered((k * kinds).flatten(0, 1), *sources)
        if context.edge_attr is not None:
            e = self.split(self.lin_edge(context.edge_attr))[0].to(keys.dtype)
            keys = keys * torch.ones_like(keys).index_copy(0, places, e)
        scores = (gathered(q * q.shape[2] ** -0.5, *targets, None) * keys).sum(2)
        weights = scores.clamp(-5.0, 5.0).exp()
        values = gathered(v.repeat(len(kinds), 1, 1), *sources)
        total = segment_sum((weights.unsqueeze(2) * values).flatten(1), *targets).view_as(v)
        out = (total / (segment_sum(weights, *targets).unsqueeze(2) + 1e-6)).flatten(1)
        context.carried["virtual"] = out[context.nodes :]
        return out[: context.nodes]


def all_edges(context: GraphContext, expander: Tensor, edge_index: Tensor) -> tuple[tuple[Tensor, ...], ...]:
    """Edges of N nodes and G virtual ones behind them: targets and sources for `gathered`, and where the graph's stand.

    Those of the graph, of the expander in both directions, to and from virtual nodes, in the order of their targets. Of
    sources there are N + G for each kind of edges.
    """
    nodes, total = torch.arange(context.nodes, device=edge_index.device), context.nodes + context.graphs
    far = (expander + context.spread(context.ptr[:-1]).unsqueeze(1)).flatten()
    near = nodes.unsqueeze(1).expand_as(expander).flatten()
    hubs = context.spread(torch.arange(context.nodes, total, device=nodes.device))
    to, within, back = nodes + TO_VIRTUAL * total, EXPANDER * total, hubs + FROM_VIRTUAL * total
    sources = torch.cat([edge_index[0], far + within, near + within, to, back])
    targets = torch.cat([edge_index[1], near, far, hubs, nodes])
    plan = edge_plan(torch.stack([sources, targets]), 4 * total)
    places = plan.by_target.argsort()
    readers = targets.index_select(0, plan.by_target), plan.target_ptr[: total + 1].long()
    read = plan.sources, plan.source_ptr.long(), places.index_select(0, plan.by_source)
    return readers, read, (places[: edge_index.shape[1]],)
