"""Graph State Space Convolution for PyTorch Geometric."""

from gssc import datasets, ops, pretrained, testing
from gssc.environment import VERSION
from gssc.model import GSSC, model_inputs
from gssc.nn import (
    GINE,
    DeepSetPhi,
    DiffusionPhi,
    ElementwisePhi,
    GatedGCN,
    GraphContext,
    GSSCLayer,
    GSSConv,
    PageRankPhi,
    PolynomialPhi,
    ResistancePhi,
    SoftmaxAttention,
    TransformerPhi,
    graph_context,
)
from gssc.pretrained import load_pretrained
from gssc.replay import replayed
from gssc.spectra import (
    Certificate,
    EmptySpectrumWarning,
    LaplacianSpectrum,
    RandomFeatures,
    RandomWalkSE,
    SpectrumError,
    prepare,
)

__version__ = VERSION

__all__ = [
    "GINE",
    "GSSC",
    "Certificate",
    "DeepSetPhi",
    "DiffusionPhi",
    "ElementwisePhi",
    "EmptySpectrumWarning",
    "GSSCLayer",
    "GSSConv",
    "GatedGCN",
    "GraphContext",
    "LaplacianSpectrum",
    "PageRankPhi",
    "PolynomialPhi",
    "RandomFeatures",
    "RandomWalkSE",
    "ResistancePhi",
    "SoftmaxAttention",
    "SpectrumError",
    "TransformerPhi",
    "datasets",
    "graph_context",
    "load_pretrained",
    "model_inputs",
    "ops",
    "prepare",
    "pretrained",
    "replayed",
    "testing",
]
