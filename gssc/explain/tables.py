"""The numbers behind the figures: influence gathered by distance, and everything as CSV."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
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


def kernel_csv(
    rows: Mapping[int, np.ndarray], self_weights: Mapping[int, np.ndarray], node: int, hops: np.ndarray
) -> str:
    """K_c(u, v) of layers [N, C]: a row for each layer and node v, a column for each channel.

    Rows of kind ``self`` hold K_s(u), what the self term multiplies the node's own features with.
    """
    channels = next(iter(rows.values())).shape[1]
    lines: list[Sequence[object]] = []
    for layer, values in rows.items():
        for v, row in enumerate(values.tolist()):
            lines.append(["kernel", layer, node, v, _distance(float(hops[v])), *row])
        lines.append(["self", layer, node, node, "0", *self_weights[layer].tolist()])
    return _csv(["kind", "layer", "u", "v", "distance", *(f"c{channel}" for channel in range(channels))], lines)


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
    lines: list[Sequence[object]] = []
    for reach in reaches:
        columns = (reach.pairs, reach.mean, reach.p10, reach.p50, reach.p90)
        for number, distance in enumerate(reach.distance.tolist()):
            lines.append([reach.name, _distance(distance), *(column[number].item() for column in columns)])
    return _csv(["model", "distance", "pairs", "mean", "p10", "p50", "p90"], lines)


def _distance(hops: float) -> str:
    return "" if np.isinf(hops) else str(int(hops))


def _csv(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line] for line in lines)
    return out.getvalue()
