"""Graph State Space Convolution for PyTorch Geometric."""

from gssc import datasets, ops, pretrained, testing
from gssc.model import GSSC, model_inputs
from gssc.nn import (
    GCN,
    GINE,
    DeepSetPhi,
    DiffusionPhi,
    ElementwisePhi,
    GatedGCN,
    GlobalAttention,
    GSSCLayer,
    GSSConv,
    PageRankPhi,
    PolynomialPhi,
    ResistancePhi,
    TransformerPhi,
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

__version__ = "0.1.0"

__all__ = [
    "GCN",
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
    "GlobalAttention",
    "LaplacianSpectrum",
    "PageRankPhi",
    "PolynomialPhi",
    "RandomFeatures",
    "RandomWalkSE",
    "ResistancePhi",
    "SpectrumError",
    "TransformerPhi",
    "datasets",
    "load_pretrained",
    "model_inputs",
    "ops",
    "prepare",
    "pretrained",
    "replayed",
    "testing",
]
