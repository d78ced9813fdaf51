"""The plots of scores: learning curves and ablation bars. Each returns a matplotlib figure."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from gssc.report.runs import SeedRun, is_number
from gssc.report.svg import INK, SERIES, panels
from gssc.report.variants import Variant


def learning_curves(variants: Sequence[Variant]) -> Any | None:
    """Training loss and validation metric by epoch, a line for each seed; the dot marks the selected epoch.

    Colours stand for variants, or for seeds where there is only one variant. None without a single epoch.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    single = len(variants) == 1
    figure, (left, right) = panels(1, 2, 2.7)
    lines: dict[str, Any] = {}
    for v, variant in enumerate(variants):
        for i, run in enumerate(run for run in variant.runs if run.history):
            colour = SERIES[(i if single else v) % len(SERIES)]
            label = f"seed {run.seed}" if single else textwrap.shorten(variant.label, 90, placeholder=" …")
            (line,) = left.plot(*_series(run, "train_loss"), color=colour, alpha=0.85)
            lines.setdefault(label, line)
            epochs, values = _series(run, "val")
            right.plot(epochs, values, color=colour, alpha=0.85, marker="." if len(epochs) < 8 else None)
            selected = run.scores.get("epoch_selected")
            if selected in epochs:
                right.plot([selected], [values[epochs.index(selected)]], "o", color=colour, markersize=4)
    if not lines:
        return None
    left.set(title="training loss", xlabel="epoch")
    right.set(title=f"validation {variants[0].metric}", xlabel="epoch")
    for axis in (left, right):
        values = [value for line in axis.lines for value in line.get_ydata()]
        if values and min(values) > 0 and max(values) > 10 * min(values):
            axis.set_yscale("log")
            # 0.01 instead of the formula that a logarithmic axis is labelled with by default.
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.yaxis.set_minor_formatter(NullFormatter())
    columns = max(1, min(5, 100 // max(len(label) + 6 for label in lines)))
    figure.legend(lines.values(), lines.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns)
    return figure


def ablation_bars(variants: Sequence[Variant]) -> Any | None:
    """A bar for each variant with its deviation over seeds, a dot for each seed, and the paper's result as a line."""
    scored = [(v, score) for v in variants if (score := v.printed("test")) is not None and math.isfinite(score.mean)]
    if len(scored) < 2:
        return None
    first, published = scored[0][0], scored[0][0].published_gssc()
    labels = ["\n".join(textwrap.wrap(v.label, 38, max_lines=3, placeholder=" …")) for v, _ in scored]
    figure, (axis,) = panels(1, 1, 0.9 + sum(0.22 + 0.16 * label.count("\n") + 0.16 for label in labels))
    for place, (variant, score) in enumerate(scored):
        axis.barh(place, score.mean, height=0.62, color=SERIES[1 if variant.overrides else 0], alpha=0.75)
        deviation = score.std if score.n > 1 else None
        axis.errorbar(score.mean, place, xerr=deviation, color=INK, capsize=3, linewidth=1.1)
        seeds = [value * variant.factor for run in variant.finished if is_number(value := run.scores.get("test"))]
        axis.plot(seeds, [place] * len(seeds), ".", color=INK, markersize=4, alpha=0.6)
    values = [score.mean + sign * score.std for _, score in scored for sign in (-1, 1)]
    if published:
        mean, std = float(published.mean), float(published.std or 0)
        values += [mean - std, mean + std]
        axis.axvline(mean, color=SERIES[2], linestyle="--", label=f"GSSC as published, {published.text}")
        axis.axvspan(mean - std, mean + std, color=SERIES[2], alpha=0.15, linewidth=0)
        axis.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0))
    low, high = min(values), max(values)
    zero = low <= 0 or low < 0.7 * high
    room = 0.06 * (high - low) or 0.05 * abs(high)
    axis.set_xlim(min(0.0, low) if zero else low - 4 * room, high + room)
    axis.set_yticks(range(len(scored)), labels)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    unit = " (%)" if first.factor == 100 else ""
    axis.set_xlabel(f"test {first.metric}{unit}{'' if zero else '; the axis does not start at zero'}")
    return figure


def _series(run: SeedRun, key: str) -> tuple[list[int], list[float]]:
    """Epochs and finite values of a column of metrics.jsonl."""
    points = [
        (int(line["epoch"]), float(line[key]))
        for line in run.history
        if is_number(line.get(key)) and math.isfinite(line[key])
    ]
    return [epoch for epoch, _ in points], [value for _, value in points]
