"""The numbers behind the figures: influence gathered by distance, and everything as CSV."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from gssc.report.render import csv_text


class Reach(NamedTuple):
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
    pairs, mean = np.array([group.size for group in groups]), np.array([group.mean() for group in groups])
    return Reach(name, distance, pairs, mean, *np.array([np.percentile(group, (10, 50, 90)) for group in groups]).T)


def kernel_csv(kernels: Mapping[int, tuple[Tensor, Tensor]], node: int, hops: np.ndarray) -> str:
    """K_c(u, v) [N, C] and K_s(u) [C] of layers: a row for each layer and node v, a column for each channel.

    Rows of kind ``self`` hold K_s(u), what the self term multiplies the node's own features with.
    """
    lines: list[Sequence[object]] = []
    for layer, (kernel, self_weight) in kernels.items():
        for v, row in enumerate(kernel.tolist()):
            lines.append(["kernel", layer, node, v, _distance(float(hops[v])), *row])
        lines.append(["self", layer, node, node, "0", *self_weight.tolist()])
    channels = [f"c{channel}" for channel in range(len(self_weight))]
    return _csv(["kind", "layer", "u", "v", "distance", *channels], lines)


def pairs_csv(parts: Mapping[str, np.ndarray], nodes: Sequence[int], hops: np.ndarray) -> str:
    """I(u, v) of each model [nodes, N]: a row for each pair."""
    lines = [
        [u, v, _distance(float(hops[row, v])), *(float(values[row, v]) for values in parts.values())]
        for row, u in enumerate(nodes)
        for v in range(hops.shape[1])
    ]
    return _csv(["u", "v", "distance", *parts], lines)


def reaches_csv(reaches: Iterable[Reach]) -> str:
    """Influence by distance: what the figure shows."""
    lines = [
        [reach.name, _distance(distance), *values]
        for reach in reaches
        for distance, *values in zip(*(column.tolist() for column in reach[1:]), strict=True)
    ]
    return _csv(["model", "distance", "pairs", "mean", "p10", "p50", "p90"], lines)


def _distance(hops: float) -> str:
    return "" if np.isinf(hops) else str(int(hops))


def _csv(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    return csv_text(headings, ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line] for line in lines))
