"""GCN through PyG: graph convolution with the normalised adjacency matrix."""

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv

from gssc.checks import check_positive, check_shape
from gssc.ops.context import GraphContext, graph_context
from gssc.ops.gine import neighbor_sum


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
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Tensor | None = None,
        *,
        context: GraphContext | None = None,
    ) -> Tensor:
        if context is None:
            check_shape("x", x, None, self.channels)
            context = graph_context(x.shape[0], edge_index=edge_index)
        if edge_weight is not None:
            return super().forward(x, edge_index, edge_weight)
        source, target = edge_index[0], edge_index[1]
        counts = torch.zeros(2, x.shape[0], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
        loops, entering = counts.index_add(1, target, torch.stack([source == target, source >= 0]).to(counts.dtype))
        scale = (entering - loops + 1).rsqrt().to(x.dtype).unsqueeze(1)
        h = scale * self.lin(x)
        # Each node once itself, whatever loops are among its edges.
        total = neighbor_sum(h, edge_index, context.plan) + (1 - loops).to(h.dtype).unsqueeze(1) * h
        return scale * total + self.bias
