"""From a graph to its spectrum: operators, solvers, truncation, random-walk encodings, and the PyG transforms."""

from gssc.spectra.attached import DataLoader
from gssc.spectra.cache import CacheWarning
from gssc.spectra.certificate import Certificate, SpectrumError
from gssc.spectra.dataset_spectra import PreparedSpectra, prepare, prepare_spectra
from gssc.spectra.expander import ExpanderGraph
from gssc.spectra.random_features import RandomFeatures
from gssc.spectra.transforms import EmptySpectrumWarning, LaplacianSpectrum, RandomWalkSE

__all__ = [
    "CacheWarning",
    "Certificate",
    "DataLoader",
    "EmptySpectrumWarning",
    "ExpanderGraph",
    "LaplacianSpectrum",
    "PreparedSpectra",
    "RandomFeatures",
    "RandomWalkSE",
    "SpectrumError",
    "prepare",
    "prepare_spectra",
]
