"""GINE through PyG: graph isomorphism convolution with edge features."""

from torch import Tensor, nn
from torch_geometric.nn import GINEConv

from gssc.checks import check_positive


class GINE(GINEConv):
    r"""PyG's ``GINEConv`` with a two-layer MLP, also for graphs without edge features.

    .. math:: x_i \leftarrow \mathrm{MLP}\Big((1 + \epsilon) x_i + \sum_j \mathrm{ReLU}(x_j + e_{ij})\Big)

    Args:
        channels: Channels of nodes and edges.
    """

    def __init__(self, channels: int) -> None:
        check_positive("channels", channels)
        super().__init__(nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)))
        self.channels = channels

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        if edge_attr is None:
            edge_attr = x.new_zeros(1, self.channels).expand(edge_index.shape[1], -1)
        return super().forward(x, edge_index, edge_attr)
