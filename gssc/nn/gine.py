"""GINE through PyG: graph isomorphism convolution with edge features."""

from torch import Tensor, nn
from torch_geometric.nn import GINEConv

from gssc.checks import check_positive, check_shape
from gssc.ops.context import GraphContext, graph_context
from gssc.ops.gine import gine_messages


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
        super().__init__(nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)))
        self.channels = channels

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        *,
        context: GraphContext | None = None,
    ) -> Tensor:
        if context is None:
            check_shape("x", x, None, self.channels)
            context = graph_context(x.shape[0], edge_index=edge_index)
        return self.nn(gine_messages(x, edge_attr, edge_index, context.plan, eps=self.eps))
