"""The plots, as matplotlib figures: learning curves and ablation bars; predictions by kind of task."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gssc.checks import fail, first_line
from gssc.readers import is_number
from gssc.report.runs import SeedRun
from gssc.report.svg import GRID, INK, SERIES, WIDTH, panels
from gssc.report.variants import Variant

POINTS = 2000  # of all scatter plots of a figure together; more would only make the page heavy
PANELS = 12  # targets of one figure


def learning_curves(variants: Sequence[Variant]) -> Any | None:
    """Training loss and validation metric by epoch, a line for each seed; the dot marks the selected epoch.

    Colours stand for variants, or for seeds where there is only one variant. None without a single epoch.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    single = len(variants) == 1
    figure, (left, right) = panels(2, 2, 2.7)
    lines: dict[str, Any] = {}
    for v, variant in enumerate(variants):
        for i, run in enumerate(run for run in variant.runs if run.history):
            colour = SERIES[(i if single else v) % len(SERIES)]
            label = f"seed {run.seed}" if single else textwrap.shorten(variant.label, 90, placeholder=" …")
            loss, scores = _by_epoch(run, "train_loss"), _by_epoch(run, "val")
            (line,) = left.plot(list(loss), list(loss.values()), color=colour, alpha=0.85)
            lines.setdefault(label, line)
            marker = "." if len(scores) < 8 else None
            right.plot(list(scores), list(scores.values()), color=colour, alpha=0.85, marker=marker)
            if is_number(selected := run.summary.get("epoch_selected")) and selected in scores:
                right.plot([selected], [scores[selected]], "o", color=colour, markersize=4)
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
            axis.yaxis.set_major_formatter("{x:g}")
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
        seeds = [value * variant.factor for run in variant.finished if is_number(value := run.summary.get("test"))]
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


def _by_epoch(run: SeedRun, key: str) -> dict[float, float]:
    """The finite values of a column of metrics.jsonl."""
    told = {int(line["epoch"]): line.get(key) for line in run.history}
    return {epoch: float(value) for epoch, value in told.items() if is_number(value) and math.isfinite(value)}


def predictions_plot(run: SeedRun) -> tuple[Any, str] | None:
    """Predicted against true values, a confusion matrix, or ROC and precision-recall curves; with its caption.

    None if the run has no predictions; ValueError if the file is damaged.
    """
    file = run.folder / "predictions.safetensors"
    if not file.exists():
        return None
    path = str(file)
    try:
        tensors = load_file(path)
        prediction, target = (tensors[name].astype(np.float64) for name in ("prediction", "target"))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        fail(path, "a safetensors file with prediction and target", first_line(error))
    if prediction.ndim != 2 or len(prediction) != len(target):
        fail(path, "as many targets as predictions", f"shapes {prediction.shape} and {target.shape}")
    kind = run.task.get("kind") or ("regression" if target.shape == prediction.shape else "multiclass")
    if kind == "multiclass":
        if target.size != len(prediction):
            fail(path, "one class for each prediction", f"shape {target.shape}")
        if target.size and target.max() >= prediction.shape[1]:
            fail(path, f"classes below {prediction.shape[1]}", int(target.max()))
        return _confusion_plot(prediction, target)
    target = target[:, None] if target.ndim == 1 else target
    if target.shape != prediction.shape:
        fail(path, f"targets of shape {prediction.shape}", target.shape)
    return _scatter_plot(prediction, target) if kind == "regression" else _ranking_plot(prediction, target)


def _scatter_plot(prediction: np.ndarray, target: np.ndarray) -> tuple[Any, str]:
    rows, targets = prediction.shape
    shown = min(targets, PANELS)
    columns = min(shown, 4)
    figure, axes = panels(shown, columns, 3.0 if shown == 1 else 2.1, 3.2 if shown == 1 else WIDTH)
    chosen = np.sort(np.random.default_rng(0).permutation(rows)[: POINTS // shown])
    for number, (axis, true, predicted) in enumerate(zip(axes, target.T, prediction.T, strict=False)):
        finite = np.isfinite(true) & np.isfinite(predicted)
        if finite.any():
            both = np.concatenate([true[finite], predicted[finite]])
            ends = [both.min(), both.max()]
            axis.plot(ends, ends, color=INK, linewidth=0.8, linestyle=":")
            error = np.abs(true[finite] - predicted[finite]).mean()
            axis.set_title((f"target {number + 1}, " if targets > 1 else "") + f"MAE {error:.3g}", fontsize=8.5)
        axis.scatter(true[chosen], predicted[chosen], s=5, color=SERIES[0], alpha=0.5, linewidths=0)
        if number >= shown - columns:
            axis.set_xlabel("true")
        if number % columns == 0:
            axis.set_ylabel("predicted")
    sample = f"{len(chosen):,} of {rows:,} rows drawn" if rows > len(chosen) else f"{rows:,} rows"
    return figure, sample + (f", the first {PANELS} of {targets} targets" if targets > PANELS else "")


def _confusion_plot(probabilities: np.ndarray, classes: np.ndarray) -> tuple[Any, str]:
    from matplotlib.patches import Rectangle

    counts = confusion(probabilities, classes)
    size = len(counts)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = max(2.6, min(5.2, 0.34 * size + 0.8))
    figure, (axis,) = panels(1, 1, side, side)
    for (true, predicted), part in np.ndenumerate(share):
        if part > 0.002:
            corner = (predicted - 0.5, true - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, color=SERIES[0], alpha=0.85 * part, linewidth=0))
        if size <= 12 and part >= 0.005:
            axis.text(predicted, true, f"{100 * part:.0f}", ha="center", va="center", fontsize=7)
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), xlabel="predicted class", ylabel="true class")
    axis.set(aspect="equal", xticks=range(size), yticks=range(size))
    axis.tick_params(labelsize=7, length=0)
    axis.grid(visible=False)
    axis.spines[["top", "right"]].set_visible(True)
    return figure, f"percent of each true class, {counts.sum():,} rows"


def confusion(probabilities: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Counts [true class, predicted class] from probabilities [rows, C]; negative classes are unknown and left out."""
    labelled = classes.reshape(-1) >= 0
    size = probabilities.shape[1]
    true, predicted = classes.reshape(-1)[labelled].astype(np.int64), probabilities[labelled].argmax(1)
    return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)


def _ranking_plot(scores: np.ndarray, labels: np.ndarray) -> tuple[Any, str]:
    figure, (left, right) = panels(2, 2, 3.0, 6.6)
    areas = []
    for column, (score, label) in enumerate(zip(scores.T, labels.T, strict=True)):
        finite = np.isfinite(label) & np.isfinite(score)
        if len(np.unique(label[finite] > 0.5)) < 2:
            continue  # neither curve is defined for a label that is always the same
        false, true, precision, area, average = ranking_curves(score[finite], label[finite])
        colour = SERIES[column % len(SERIES)]
        left.plot(false, true, color=colour, alpha=0.85)
        right.plot(true, precision, color=colour, alpha=0.85, drawstyle="steps-pre")
        areas.append((area, average))
    left.plot([0, 1], [0, 1], color=GRID, linestyle=":")
    many = len(areas) > 1
    if areas:
        area, average = np.mean(areas, axis=0)
        left.set_title(f"ROC, {'mean ' * many}area {area:.4f}")
        right.set_title(f"precision-recall, {'mean ' * many}AP {average:.4f}")
    left.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    right.set(xlabel="recall", ylabel="precision", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure, f"{len(scores):,} rows" + (f", a curve for each of {len(areas)} labels" if many else "")


def ranking_curves(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """False-positive rates, true-positive rates (recalls) and precisions from the highest score down; ROC area and AP.

    One point for each distinct score, so that ties are crossed in a straight line; the first is before all of them.
    """
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)
    taken = np.concatenate([[0], last + 1])
    hits = np.concatenate([[0], np.cumsum(labels[order] > 0.5)[last]])
    false, true = (taken - hits) / (taken - hits)[-1], hits / hits[-1]
    precision = np.concatenate([[1.0], hits[1:] / taken[1:]])
    area = float(np.sum(np.diff(false) * (true[1:] + true[:-1])) / 2)
    return false, true, precision, area, float(np.sum(np.diff(true) * precision[1:]))
