"""Layers with parameters. Each is a function of tensors; none reads a configuration."""

from gssc.nn.attention import GlobalAttention
from gssc.nn.encoders import FeatureEncoder, RandomWalkEncoder, SpectralDiagonalEncoder
from gssc.nn.gated_gcn import GatedGCN
from gssc.nn.gine import GINE
from gssc.nn.gssconv import GSSConv
from gssc.nn.heads import GraphHead, MLPHead
from gssc.nn.layer import GSSCLayer
from gssc.nn.norm import BatchNorm
from gssc.nn.phi import DeepSetPhi, DiffusionPhi, ElementwisePhi, PageRankPhi, Phi, ResistancePhi, TransformerPhi

__all__ = [
    "GINE",
    "BatchNorm",
    "DeepSetPhi",
    "DiffusionPhi",
    "ElementwisePhi",
    "FeatureEncoder",
    "GSSCLayer",
    "GSSConv",
    "GatedGCN",
    "GlobalAttention",
    "GraphHead",
    "MLPHead",
    "PageRankPhi",
    "Phi",
    "RandomWalkEncoder",
    "ResistancePhi",
    "SpectralDiagonalEncoder",
    "TransformerPhi",
]
