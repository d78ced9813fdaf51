"""Graph State Space Convolution for PyTorch Geometric."""

from gssc import datasets, ops, pretrained, testing
from gssc.distribution import VERSION, warn_of_namesake
from gssc.model import GSSC, model_inputs
from gssc.nn import (
    GINE,
    DeepSetPhi,
    DiffusionPhi,
    ElementwisePhi,
    GatedGCN,
    GraphContext,
    GSSCBlock,
    GSSCLayer,
    GSSConv,
    PageRankPhi,
    PolynomialPhi,
    ResistancePhi,
    SoftmaxAttention,
    TransformerPhi,
    graph_context,
)
from gssc.pretrained import load_pretrained, open_model
from gssc.pretrained.fit import fit
from gssc.replay import replayed
from gssc.spectra import (
    Certificate,
    DataLoader,
    EmptySpectrumWarning,
    LaplacianSpectrum,
    RandomFeatures,
    RandomWalkSE,
    SpectrumError,
    prepare,
)

__version__ = VERSION
warn_of_namesake()

__all__ = [
    "GINE",
    "GSSC",
    "Certificate",
    "DataLoader",
    "DeepSetPhi",
    "DiffusionPhi",
    "ElementwisePhi",
    "EmptySpectrumWarning",
    "GSSCBlock",
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
    "fit",
    "graph_context",
    "load_pretrained",
    "model_inputs",
    "open_model",
    "ops",
    "prepare",
    "pretrained",
    "replayed",
    "testing",
]
