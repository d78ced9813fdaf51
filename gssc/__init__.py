"""Graph State Space Convolution for PyTorch Geometric.

What a name needs is imported when the name is first asked for: ``gssc --help`` waits for no PyTorch.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gssc.distribution import VERSION, warn_of_namesake

if TYPE_CHECKING:
    from gssc import datasets, ops, pretrained, testing
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
        ExpanderGraph,
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
    "ExpanderGraph",
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

_PLACES = ("model", "nn", "spectra", "replay", "pretrained", "pretrained.fit")  # where these names are


def __getattr__(name: str) -> Any:
    """A name of ``__all__``, or a submodule."""
    for place in _PLACES if name in __all__ else ():
        module = import_module(f"gssc.{place}")
        if name in module.__all__ if hasattr(module, "__all__") else hasattr(module, name):
            value = globals()[name] = getattr(module, name)
            return value
    if not name.startswith("_") and find_spec(f"gssc.{name}") is not None:
        return import_module(f"gssc.{name}")
    raise AttributeError(f"module 'gssc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
