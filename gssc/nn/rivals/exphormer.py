"""Exphormer: attention along edges, those of the graph and of an expander, and through a virtual node."""

import torch
from torch import Tensor, nn

from gssc.checks import fail
from gssc.nn.global_part import GlobalPart
from gssc.ops.context import GraphContext
from gssc.ops.graph_sums import segment_sum

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
        virtual = context.carried.get("virtual")
        if virtual is None:
            if self.virtual is None:
                fail("first", "True, for a layer before which there is no other", "False")
            virtual = self.virtual.weight.expand(context.graphs, -1)
        q, k, v = self.split(self.lin_qkv(x), 3)
        q_of, k_of, v_of = self.split(self.lin_qkv(virtual), 3)
        kinds = self.lin_edge(self.kinds.weight).unflatten(1, (self.heads, -1))

        # From the virtual node, along the expander in both directions, and along the edges.
        weights = self._weights(q, context.spread(k_of), kinds[FROM_VIRTUAL])
        total, mass = weights.unsqueeze(2) * context.spread(v_of), weights
        far = context.expander + context.spread(context.ptr[:-1]).unsqueeze(1)
        near = torch.arange(context.nodes, device=x.device).unsqueeze(1).expand_as(far)
        others = torch.cat([far, near.clone().scatter_(0, far, near)], dim=1)
        k_far, v_far = (rows.index_select(0, others.flatten()).unflatten(0, others.shape) for rows in (k, v))
        weights = self._weights(q.unsqueeze(1), k_far, kinds[EXPANDER])
        total, mass = total + (weights.unsqueeze(3) * v_far).sum(1), mass + weights.sum(1)
        source, target = context.edge_index
        e = kinds[EDGE] if context.edge_attr is None else self.split(self.lin_edge(context.edge_attr))[0]
        weights = self._weights(q.index_select(0, target), k.index_select(0, source), e)
        total = total.index_add(0, target, weights.unsqueeze(2) * v.index_select(0, source))
        mass = mass.index_add(0, target, weights)

        weights = self._weights(context.spread(q_of), k, kinds[TO_VIRTUAL])
        sums = torch.cat([(weights.unsqueeze(2) * v).flatten(1), weights], dim=1)
        of_graphs = segment_sum(sums, context.batch, context.ptr)
        values = of_graphs[:, : self.channels].unflatten(1, (self.heads, -1))
        context.carried["virtual"] = (values / (of_graphs[:, self.channels :].unsqueeze(2) + 1e-6)).flatten(1)
        return (total / (mass.unsqueeze(2) + 1e-6)).flatten(1)

    @staticmethod
    def _weights(q: Tensor, k: Tensor, e: Tensor) -> Tensor:
        """[..., heads], from [..., heads, d] each."""
        return torch.exp(((q * k * e).sum(-1) * q.shape[-1] ** -0.5).clamp(-5.0, 5.0))
