"""The numbers behind the figures, as CSV."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gssc.explain.summary import Reach


def kernel_csv(rows: Mapping[int, np.ndarray], own: Mapping[int, np.ndarray], node: int, hops: np.ndarray) -> str:
    """K_c(u, v) of layers [N, C]: a row for each layer and node v, a column for each channel.

    Rows of kind ``self`` hold K_s(u), what the self term multiplies the node's own features with.
    """
    channels = next(iter(rows.values())).shape[1]
    lines: list[Sequence[object]] = []
    for layer, values in rows.items():
        for v, row in enumerate(values.tolist()):
            lines.append(["kernel", layer, node, v, _distance(float(hops[v])), *row])
        lines.append(["self", layer, node, node, "0", *own[layer].tolist()])
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
    writer.writerows([_short(cell) for cell in line] for line in lines)
    return out.getvalue()


def _short(cell: object) -> object:
    return f"{cell:.6g}" if isinstance(cell, float) else cell
