"""From raw eigenpairs to the spectrum that layers may use: exact zeros, cluster means, order, cut, padding.

Solvers return rounding noise: sqrt(-1e-17) is NaN, and equal eigenvalues that differ in their last bit get different
gains, which breaks every symmetry of the layer. So values of magnitude up to ``tolerance`` become exactly 0, every
cluster of eigenvalues that are equal within ``tolerance`` takes its mean, and the cut never splits a cluster.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gssc.spectra.certificate import Certificate

ZeroModes = Literal["keep", "drop"]
Truncation = Literal["eigenspace", "raw"]
ZERO_MODES = ("keep", "drop")
TRUNCATIONS = ("eigenspace", "raw")


@dataclass(frozen=True)
class Spectrum:
    """K frequencies of one graph: values [K], vectors [n, K], mask [K] (True = valid); zero where masked.

    ``available`` counts the pairs that there were to choose from; none kept of some available is worth a warning.
    ``certificate`` says how accurate the pairs are and how it is known that none was missed.
    """

    values: np.ndarray
    vectors: np.ndarray
    mask: np.ndarray
    available: int
    certificate: Certificate | None = None


def merge_clusters(values: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Cluster means in place of ascending ``values``, and the number of each value's cluster.

    Neighbours closer than ``tolerance`` are equal; what is within ``tolerance`` of zero is exactly zero.
    """
    if values.size == 0:
        return values.copy(), np.zeros(0, dtype=np.int64)
    cleaned = np.where(np.abs(values) <= tolerance, 0.0, values)
    cluster = np.concatenate([[0], np.cumsum(np.diff(cleaned) > tolerance)])
    means = np.bincount(cluster, weights=cleaned) / np.bincount(cluster)
    # A cluster that holds exact zeros is zero, not the mean of zeros and noise.
    means[cluster[cleaned == 0.0]] = 0.0
    return means[cluster], cluster


def magnitude_order(values: np.ndarray, tolerance: float) -> np.ndarray:
    """Indices by |λ| descending, + before -, magnitudes equal within ``tolerance`` being ties."""
    ascending = np.argsort(np.abs(values), kind="stable")
    _, group = merge_clusters(np.abs(values)[ascending], tolerance)
    rank = np.empty(values.size, dtype=np.int64)
    rank[ascending] = group
    return np.lexsort((np.arange(values.size), -np.sign(values), -rank))


@dataclass(frozen=True)
class Selection:
    """Which of the ascending eigenvalues are kept: indices in order [m], and all values, cleaned, with their cluster.

    ``accepted`` marks what lies on the kept side of the cut (zero modes that are dropped on request included), and
    ``gap`` is the distance across the cut: inf where one side is empty.
    """

    kept: np.ndarray
    values: np.ndarray
    cluster: np.ndarray
    accepted: np.ndarray
    gap: float
    available: int


def select(
    values: np.ndarray,
    k: int,
    *,
    tolerance: float,
    by_magnitude: bool = False,
    zero_modes: ZeroModes = "keep",
    truncation: Truncation = "eigenspace",
) -> Selection:
    """Which of the ascending ``values`` the first ``k`` in whole eigenspaces are; arguments as for `truncate`."""
    values, cluster = merge_clusters(values, tolerance)
    if by_magnitude:
        order = magnitude_order(values, tolerance)
    else:
        order = np.flatnonzero(values != 0.0) if zero_modes == "drop" else np.arange(values.size)
    kept = order[:k]
    if truncation == "eigenspace" and order.size > k:
        kept = kept[cluster[kept] != cluster[order[k]]]
    accepted = np.ones(values.size, dtype=bool)
    accepted[order] = False
    accepted[kept] = True
    across = np.flatnonzero(accepted[1:] != accepted[:-1])
    gap = float(np.diff(values)[across].min(initial=np.inf))
    return Selection(kept, values, cluster, accepted, gap, order.size)


def truncate(
    values: np.ndarray,
    vectors: np.ndarray,
    k: int,
    *,
    tolerance: float,
    by_magnitude: bool = False,
    zero_modes: ZeroModes = "keep",
    truncation: Truncation = "eigenspace",
) -> Spectrum:
    """The first ``k`` of the ascending eigenpairs given, in whole eigenspaces, padded with zeros to ``k``.

    ``by_magnitude`` takes the largest |λ| first (adjacency) and ignores ``zero_modes``. With fewer than ``k`` pairs,
    all are kept; otherwise the eigenspace that straddles the cut is dropped, unless ``truncation="raw"``.
    """
    selection = select(
        values, k, tolerance=tolerance, by_magnitude=by_magnitude, zero_modes=zero_modes, truncation=truncation
    )
    count = selection.kept.size
    out = Spectrum(np.zeros(k), np.zeros((vectors.shape[0], k)), np.arange(k) < count, selection.available)
    out.values[:count] = selection.values[selection.kept]
    out.vectors[:, :count] = vectors[:, selection.kept]
    return out
