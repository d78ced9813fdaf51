"""Layers with parameters. Each is a function of tensors; none reads a configuration."""

from gssc.nn.attention import SoftmaxAttention
from gssc.nn.block import GSSCBlock
from gssc.nn.encoders import (
    EdgeHead,
    EigenvectorEncoder,
    FeatureEncoder,
    GraphHead,
    MLPHead,
    RandomWalkEncoder,
    SpectralDiagonalEncoder,
)
from gssc.nn.gssconv import GSSConv, joint_gains
from gssc.nn.layer import GSSCLayer
from gssc.nn.local import GINE, GatedGCN, LocalGCN, LocalPNA, make_locals
from gssc.nn.norm import BatchNorm, reestimate_batch_norms, synchronize_batch_norms
from gssc.nn.phi import (
    DeepSetPhi,
    DiffusionPhi,
    ElementwisePhi,
    PageRankPhi,
    Phi,
    PolynomialPhi,
    ResistancePhi,
    TransformerPhi,
)
from gssc.nn.rivals import Exphormer, GraphMamba, Grit, Performer, PolynormerAttention, SimpleAttention
from gssc.ops.context import GraphContext, graph_context

__all__ = [
    "GINE",
    "BatchNorm",
    "DeepSetPhi",
    "DiffusionPhi",
    "EdgeHead",
    "EigenvectorEncoder",
    "ElementwisePhi",
    "Exphormer",
    "FeatureEncoder",
    "GSSCBlock",
    "GSSCLayer",
    "GSSConv",
    "GatedGCN",
    "GraphContext",
    "GraphHead",
    "GraphMamba",
    "Grit",
    "LocalGCN",
    "LocalPNA",
    "MLPHead",
    "PageRankPhi",
    "Performer",
    "Phi",
    "PolynomialPhi",
    "PolynormerAttention",
    "RandomWalkEncoder",
    "ResistancePhi",
    "SimpleAttention",
    "SoftmaxAttention",
    "SpectralDiagonalEncoder",
    "TransformerPhi",
    "graph_context",
    "joint_gains",
    "make_locals",
    "reestimate_batch_norms",
    "synchronize_batch_norms",
]
