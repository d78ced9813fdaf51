"""From a graph to its spectrum: operators, solvers, truncation, random-walk encodings, and the PyG transforms."""

from gssc.spectra.transforms import EmptySpectrumWarning, LaplacianSpectrum, RandomWalkSE

__all__ = ["EmptySpectrumWarning", "LaplacianSpectrum", "RandomWalkSE"]
