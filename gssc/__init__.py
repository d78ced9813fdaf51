"""Graph State Space Convolution for PyTorch Geometric."""

from gssc.model import GSSC, model_inputs
from gssc.nn import (
    GINE,
    DeepSetPhi,
    DiffusionPhi,
    ElementwisePhi,
    GatedGCN,
    GlobalAttention,
    GSSCLayer,
    GSSConv,
    PageRankPhi,
    ResistancePhi,
    TransformerPhi,
)
from gssc.spectra import EmptySpectrumWarning, LaplacianSpectrum, RandomWalkSE

__version__ = "0.1.0"

__all__ = [
    "GINE",
    "GSSC",
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
    "RandomWalkSE",
    "ResistancePhi",
    "TransformerPhi",
    "model_inputs",
]
