"""The plots of predictions: scatter against truth, confusion matrix, ROC and precision-recall curves."""

from typing import Any

import numpy as np

from gssc.checks import fail
from gssc.report.curves import confusion, precision_recall_curve, roc_curve
from gssc.report.figures import WIDTH, panels
from gssc.report.runs import SeedRun
from gssc.report.svg import GRID, INK, SERIES

POINTS = 2000  # of all scatter plots of a figure together; more would only make the page heavy
PANELS = 12  # targets of one figure


def predictions_plot(run: SeedRun) -> tuple[Any, str] | None:
    """Predicted against true values, a confusion matrix, or ROC and precision-recall curves; with its caption.

    None if the run has no predictions; ValueError if the file is damaged.
    """
    loaded = run.predictions()
    if loaded is None:
        return None
    prediction, target = (np.asarray(values, dtype=np.float64) for values in loaded)
    path = str(run.folder / "predictions.safetensors")
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
    lines = -(-shown // columns)
    figure, axes = panels(lines, columns, 3.0 if shown == 1 else 2.1 * lines, 3.2 if shown == 1 else WIDTH)
    chosen = np.sort(np.random.default_rng(0).permutation(rows)[: POINTS // shown])
    for number, axis in enumerate(axes):
        if number >= shown:
            axis.set_axis_off()
            continue
        known = np.isfinite(target[:, number]) & np.isfinite(prediction[:, number])
        true, predicted = target[chosen, number], prediction[chosen, number]
        if known.any():
            both = np.concatenate([target[known, number], prediction[known, number]])
            ends = [both.min(), both.max()]
            axis.plot(ends, ends, color=INK, linewidth=0.8, linestyle=":")
            error = np.abs(target[known, number] - prediction[known, number]).mean()
            axis.set_title((f"target {number + 1}, " if targets > 1 else "") + f"MAE {error:.3g}", fontsize=8.5)
        axis.scatter(true, predicted, s=5, color=SERIES[0], alpha=0.5, linewidths=0)
        if number >= shown - columns:
            axis.set_xlabel("true")
        if number % columns == 0:
            axis.set_ylabel("predicted")
    sample = f"{len(chosen):,} of {rows:,} rows drawn" if rows > len(chosen) else f"{rows:,} rows"
    return figure, sample + (f", the first {PANELS} of {targets} targets" if targets > PANELS else "")


def _confusion_plot(probabilities: np.ndarray, classes: np.ndarray) -> tuple[Any, str]:
    counts = confusion(probabilities, classes)
    size = len(counts)
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = max(2.6, min(5.2, 0.34 * size + 0.8))
    figure, (axis,) = panels(1, 1, side, side)
    from matplotlib.patches import Rectangle

    for true in range(size):
        for predicted in range(size):
            part = float(share[true, predicted])
            if part > 0.002:
                corner = (predicted - 0.5, true - 0.5)
                axis.add_patch(Rectangle(corner, 1, 1, color=SERIES[0], alpha=0.85 * part, linewidth=0))
            if size <= 12 and part >= 0.005:
                axis.text(predicted, true, f"{100 * part:.0f}", ha="center", va="center", fontsize=7)
    axis.set(xlim=(-0.5, size - 0.5), ylim=(size - 0.5, -0.5), xlabel="predicted class", ylabel="true class")
    axis.set_aspect("equal")
    axis.set_xticks(range(size))
    axis.set_yticks(range(size))
    axis.tick_params(labelsize=7, length=0)
    axis.grid(visible=False)
    axis.spines[["top", "right"]].set_visible(True)
    return figure, f"percent of each true class, {counts.sum():,} rows"


def _ranking_plot(scores: np.ndarray, labels: np.ndarray) -> tuple[Any, str]:
    figure, (left, right) = panels(1, 2, 3.0, 6.6)
    areas, averages = [], []
    for column in range(scores.shape[1]):
        known = np.isfinite(labels[:, column]) & np.isfinite(scores[:, column])
        mine, truth = scores[known, column], labels[known, column]
        if truth.size == 0 or truth.min() > 0.5 or truth.max() <= 0.5:
            continue  # neither curve is defined for a label that is always the same
        false, true, area = roc_curve(mine, truth)
        recall, precision, average = precision_recall_curve(mine, truth)
        colour = SERIES[column % len(SERIES)]
        left.plot(false, true, color=colour, alpha=0.85)
        right.plot(recall, precision, color=colour, alpha=0.85, drawstyle="steps-pre")
        areas.append(area)
        averages.append(average)
    left.plot([0, 1], [0, 1], color=GRID, linestyle=":")
    many = len(areas) > 1
    mean = "mean " if many else ""
    if areas:
        left.set_title(f"ROC, {mean}area {np.mean(areas):.4f}")
        right.set_title(f"precision-recall, {mean}AP {np.mean(averages):.4f}")
    left.set(xlabel="false-positive rate", ylabel="true-positive rate", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    right.set(xlabel="recall", ylabel="precision", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return figure, f"{len(scores):,} rows" + (f", a curve for each of {len(areas)} labels" if many else "")
