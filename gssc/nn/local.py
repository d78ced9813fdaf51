"""The local part of a layer: message passing by name, as a module, or by a function that makes one."""

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

from torch import nn
from torch_geometric.nn import GATConv, GINConv

from gssc.checks import check_choice, fail
from gssc.nn.copies import Source, copies
from gssc.nn.gated_gcn import GatedGCN
from gssc.nn.gcn import LocalGCN
from gssc.nn.gine import GINE
from gssc.nn.norm import NormName
from gssc.nn.pna import LocalPNA

Local = Literal["gatedgcn", "gine", "gin", "gcn", "gat", "pna", "none"]
LOCALS: tuple[str, ...] = get_args(Local)


def make_local(
    local: Local | Source,
    channels: int,
    dropout: float = 0.0,
    norm: NormName = "batch",
    edge_features: bool = False,
    degree_histogram: Sequence[int] | None = None,
) -> nn.Module | None:
    """A convolution C → C, or ``None`` for ``"none"``.

    Args:
        local: A name, a module, which is returned as it is, or a function of the number of channels that makes one.
            GatedGCN, GINE, GAT and PNA use edge features where there are any; GIN and GCN have no place for them.
        channels: C.
        dropout: Dropout inside GatedGCN.
        norm: Normalisation inside GatedGCN.
        edge_features: Whether there are any.
        degree_histogram: Of the training set, which PNA needs.
    """
    if not isinstance(local, str):
        return next(copies("local", local, 1, channels))
    check_choice("local", local, LOCALS)
    if local == "gatedgcn":
        return GatedGCN(channels, dropout, norm)
    if local == "gine":
        return GINE(channels)
    if local == "gin":
        return GINConv(nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)))
    if local == "gcn":
        return LocalGCN(channels)
    if local == "gat":
        return GATConv(channels, channels, edge_dim=channels)
    if local == "pna":
        if degree_histogram is None:
            fail("degree_histogram", "that of the training set, for local='pna'", "None")
        return LocalPNA(channels, degree_histogram, edge_features)
    return None


def make_locals(
    local: Local | Source,
    layers: int,
    channels: int,
    dropout: float = 0.0,
    norm: NormName = "batch",
    edge_features: bool = False,
    degree_histogram: Sequence[int] | None = None,
) -> Iterator[nn.Module | None]:
    """One `make_local` per layer; a module serves the first, and fresh copies of it the others."""

    def by_name(channels: int) -> nn.Module | None:
        return make_local(local, channels, dropout, norm, edge_features, degree_histogram)

    return copies("local", by_name if isinstance(local, str) else local, layers, channels)
