"""Message passing by name: the local part of a layer."""

from collections.abc import Sequence
from typing import Literal, get_args

from torch import nn
from torch_geometric.nn import GATConv, GINConv

from gssc.checks import check_choice, fail
from gssc.nn.gated_gcn import GatedGCN
from gssc.nn.gcn import GCN
from gssc.nn.gine import GINE
from gssc.nn.norm import NormName
from gssc.nn.pna import PNA

Local = Literal["gatedgcn", "gine", "gin", "gcn", "gat", "pna", "none"]
LOCALS: tuple[str, ...] = get_args(Local)


def make_local(
    name: Local,
    channels: int,
    dropout: float = 0.0,
    norm: NormName = "batch",
    edge_features: bool = False,
    degree_histogram: Sequence[int] | None = None,
) -> nn.Module | None:
    """A convolution of ``channels``, or ``None`` for ``"none"``.

    GatedGCN, GINE, GAT and PNA use edge features where there are any; GIN and GCN have no place for them. ``dropout``
    and ``norm`` are those inside GatedGCN, ``degree_histogram`` is that of the training set, which PNA needs.
    """
    check_choice("local", name, LOCALS)
    if name == "gatedgcn":
        return GatedGCN(channels, dropout, norm)
    if name == "gine":
        return GINE(channels)
    if name == "gin":
        return GINConv(nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)))
    if name == "gcn":
        return GCN(channels)
    if name == "gat":
        return GATConv(channels, channels, edge_dim=channels)
    if name == "pna":
        if degree_histogram is None:
            fail("degree_histogram", "that of the training set, for local='pna'", "None")
        return PNA(channels, degree_histogram, edge_features)
    return None
