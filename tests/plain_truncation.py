"""The rule of `gssc.spectra.truncation` for one graph in plain NumPy: the judge of the vectorised one."""

from types import SimpleNamespace

import numpy as np


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


def truncate(values, vectors, k, *, tolerance, by_magnitude=False, zero_modes="keep", truncation="eigenspace"):
    """The first ``k`` of the ascending eigenpairs given, and the distance across the cut."""
    computed = values
    values, cluster = merge_clusters(values, tolerance)
    if by_magnitude:
        order = magnitude_order(values, tolerance)
    else:
        order = np.flatnonzero(values != 0.0) if zero_modes == "drop" else np.arange(values.size)
    kept = order[:k]
    if truncation == "eigenspace" and order.size > k:
        kept = kept[cluster[kept] != cluster[order[k]]]
    # Zero modes that are dropped on request lie on the kept side of the cut.
    accepted = np.ones(values.size, dtype=bool)
    accepted[order] = False
    accepted[kept] = True
    across = np.flatnonzero(accepted[1:] != accepted[:-1])
    gap = float(np.where(np.diff(cluster) == 0, 0.0, np.diff(computed))[across].min(initial=np.inf))
    out = SimpleNamespace(values=np.zeros(k), vectors=np.zeros((vectors.shape[0], k)), available=order.size)
    out.mask = np.arange(k) < kept.size
    out.values[: kept.size] = values[kept]
    out.vectors[:, : kept.size] = vectors[:, kept]
    return out, gap
