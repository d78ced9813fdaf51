"""Figures: a kernel on its graph, influence against distance. Each returns a matplotlib figure."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gssc.explain.jacobian import Reach
from gssc.report.svg import panels, saved

COLOURS = ("#0b6e99", "#c4501b", "#5a5a5a", "#7d3c98")
FLOOR = 1e-7  # of the largest influence: what is below is rounding, or nothing
ACROSS = 4  # panels side by side


def kernel_figure(
    positions: np.ndarray,
    edge_index: np.ndarray,
    kernels: Sequence[tuple[str, np.ndarray]],
    node: int | None,
    title: str,
    symbols: Sequence[str] | None = None,
) -> Any:
    """The graph once for each kernel (its name, values [N]), nodes coloured by value, ``node`` marked by a ring.

    Each panel has its own symmetric scale, that of the other nodes: the value of ``node`` itself, often the largest by
    far, is told above it. Nodes are called by their ``symbols``.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.colors import FuncNorm

    columns = min(ACROSS, math.ceil(len(kernels) ** 0.5))
    figure, axes = panels(len(kernels), columns, 3.3, 3.4 * columns, above=0.5)
    figure.suptitle(title, fontsize=10)
    others = np.arange(len(positions)) != (-1 if node is None else node)
    once = np.unique(np.sort(edge_index.T, axis=1), axis=0)  # both directions are one line
    segments = list(positions[once])
    size = float(np.clip(6_000.0 / max(len(positions), 1), 4.0, 120.0))
    for axis, (name, values) in zip(axes, kernels, strict=True):
        limit = float(np.abs(values[others]).max(initial=0.0)) or float(np.abs(values).max(initial=0.0)) or 1.0
        axis.add_collection(LineCollection(segments, colors="#b8b8b8", linewidths=0.7, zorder=1))
        # By the signed root, so that a hundredth of the largest value still has a tenth of the colour.
        norm = FuncNorm((lambda v: np.sign(v) * np.sqrt(abs(v)), lambda v: v * abs(v)), vmin=-limit, vmax=limit)
        colours = {"c": values, "cmap": "RdBu_r", "norm": norm}
        drawn = axis.scatter(*positions.T, s=size, linewidths=0.3, edgecolors="#404040", zorder=2, **colours)
        for place, value, symbol in zip(positions, values, symbols or (), strict=False):
            text = {"fontsize": 0.55 * size**0.5, "color": "white" if abs(value) > 0.4 * limit else "black"}
            axis.text(*place, symbol, ha="center", va="center", zorder=3, **text)
        if node is not None:
            ring = {"facecolors": "none", "edgecolors": "black", "linewidths": 1.4}
            axis.scatter(*positions[[node]].T, s=3.2 * size, zorder=3, **ring)
            name = f"{name}, at the node itself {values[node]:.2g}"
        axis.set_title(name, fontsize=8.5)
        axis.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal")
        axis.axis("off")
        bar = figure.colorbar(drawn, ax=axis, shrink=0.75, pad=0.01, format="%.2g")
        bar.set_ticks([-limit, -limit / 4, -limit / 100, limit / 100, limit / 4, limit])
        bar.ax.tick_params(labelsize=6.5)
    return figure


def influence_figure(reaches: Sequence[Reach], title: str, note: str = "") -> Any:
    """Mean influence against distance with the band from the 10th to the 90th percentile, one line per model."""
    figure, (axis,) = panels(1, 1, 4.2, 6.4)
    distance, mean, p10 = (np.concatenate([getattr(r, name) for r in reaches]) for name in ("distance", "mean", "p10"))
    farthest = distance[np.isfinite(distance)].max(initial=0.0)
    beyond = farthest + max(1.0, 0.06 * farthest)
    largest = mean.max(initial=0.0) or 1.0
    floor = FLOOR * largest
    shown = mean > floor
    lowest = min(mean[shown].min(initial=largest), p10[shown & np.isfinite(distance)].clip(floor).min(initial=largest))
    for number, (reach, colour) in enumerate(zip(reaches, COLOURS, strict=False)):
        finite, some = np.isfinite(reach.distance), reach.mean > floor
        place, path, far = np.where(finite, reach.distance, beyond), some & finite, some & ~finite
        axis.plot(place[path], reach.mean[path], "-o", color=colour, markersize=3.0, linewidth=1.3, label=reach.name)
        axis.plot(place[far], reach.mean[far], "s", color=colour, markersize=4.0)
        low, high = reach.p10[path].clip(floor), reach.p90[path].clip(floor)
        axis.fill_between(place[path], low, high, color=colour, alpha=0.15, linewidth=0)
        # Nothing has no place on a logarithmic axis: it is drawn below all that has one.
        height = np.full((~some).sum(), lowest / 4.0 / 1.6**number)
        axis.plot(place[~some], height, "v", color=colour, fillstyle="none", markersize=4)
    axis.set(yscale="log", xlabel="distance of v from u (edges)", ylabel="influence ‖∂h_u / ∂x_v‖")
    axis.set_title(title, fontsize=9.5)
    if np.isinf(distance).any():
        axis.axvline(beyond, color="#b8b8b8", linewidth=0.7, zorder=0)
        axis.annotate(" no path", (beyond, 1.0), xycoords=("data", "axes fraction"), fontsize=7, va="top", rotation=90)
    axis.grid(visible=True, which="major", linewidth=0.4, alpha=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    below = "hollow: 0, or less than rounding" if not shown.all() else ""
    words = "; ".join(part for part in (note, "bands: 10th to 90th percentile", below) if part)
    figure.supxlabel(words, fontsize=7, color="#505050")
    return figure


def rendered(figure: Any, name: str) -> dict[str, bytes]:
    """The figure on white as ``NAME.png`` and ``NAME.svg``, the same bytes every time."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "gssc", "svg.fonttype": "path", "savefig.facecolor": "white"}):
        return {f"{name}.{kind}": saved(figure, kind, dpi=150) for kind in ("png", "svg")}
