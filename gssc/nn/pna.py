"""PNA through PyG: principal neighbourhood aggregation with edge features."""

from collections.abc import Sequence

import torch
from torch_geometric.nn import PNAConv

from gssc.checks import check_positive, fail

AGGREGATORS = ["mean", "min", "max", "std"]
SCALERS = ["identity", "amplification", "attenuation"]


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
        counts = torch.as_tensor(degree_histogram)
        if counts.dim() != 1 or not counts.numel() or bool((counts < 0).any()) or not bool(counts.any()):
            fail("degree_histogram", "how many nodes have 0, 1, 2, … neighbours", str(degree_histogram))
        if not bool(counts[1:].any()):
            # No edge in the training set: any mean degree but zero, which would divide zero messages by zero, will do.
            counts = torch.tensor([0, 1])
        super().__init__(channels, channels, AGGREGATORS, SCALERS, counts, edge_dim=channels if edge_features else None)
