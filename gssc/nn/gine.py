"""GINE through PyG: graph isomorphism convolution with edge features."""

from torch import Tensor, nn
from torch_geometric.nn import GINEConv

from gssc.checks import check_positive, check_shape
from gssc.nn.plain_modules import plain_linears
from gssc.ops import EdgePlan, gine_messages
from gssc.ops.cpu_layer.gine import gine
from gssc.ops.messages import Backend
from gssc.ops.plain import one_type_on_cpu
from gssc.ops.triton_support import can_fuse


class GINE(GINEConv):
    r"""PyG's ``GINEConv`` with a two-layer MLP, also for graphs without edge features.

    .. math:: x_i \leftarrow \mathrm{MLP}\Big((1 + \epsilon) x_i + \sum_j \mathrm{ReLU}(x_j + e_{ij})\Big)

    On a GPU the sum is one op (``gssc.ops.gine``) that stores nothing of size E × C; layers that share edges
    should share ``plan``, which is ``gssc.ops.edge_plan(edge_index, N)``.

    Args:
        channels: Channels of nodes and edges.
    """

    def __init__(self, channels: int) -> None:
        check_positive("channels", channels)
        super().__init__(nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)))
        self.channels = channels

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None, plan: EdgePlan | None = None
    ) -> Tensor:
        if plan is not None and plain_linears(self.nn[0], self.nn[2]):
            inner, outer = self.nn[0], self.nn[2]
            weights = (inner.weight, inner.bias, outer.weight, outer.bias)
            if one_type_on_cpu(x, edge_attr, self.eps, *weights):
                check_shape("x", x, None, self.channels)
                check_shape("edge_index", edge_index, 2, None)
                if edge_attr is not None:
                    check_shape("edge_attr", edge_attr, edge_index.shape[1], self.channels)
                return gine(x, edge_attr, self.eps, weights, edge_index, plan)
        backend: Backend = "fused" if can_fuse(x, edge_attr) else "eager"
        return self.nn(gine_messages(x, edge_attr, edge_index, plan, backend, self.eps))
