"""Influence gathered by distance: one line of a plot."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Reach:
    """Influence of one model on one graph, by distance.

    ``distance`` ascends, inf (no path) last; for each there are ``pairs`` (u, v), and mean, 10th, 50th and 90th
    percentile of their influence.
    """

    name: str
    distance: np.ndarray
    pairs: np.ndarray
    mean: np.ndarray
    p10: np.ndarray
    p50: np.ndarray
    p90: np.ndarray


def by_distance(name: str, influence: np.ndarray, hops: np.ndarray) -> Reach:
    """Summary of influences [nodes, N] at distances [nodes, N]."""
    distance = np.unique(hops)
    groups = [influence[hops == d] for d in distance]
    low, middle, high = (np.array([np.percentile(group, q) for group in groups]) for q in (10, 50, 90))
    sizes = np.array([group.size for group in groups], dtype=np.int64)
    return Reach(name, distance, sizes, np.array([group.mean() for group in groups]), low, middle, high)
