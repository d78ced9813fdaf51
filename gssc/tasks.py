"""What is to be predicted: the loss to train with, the metric to report, and which direction is better."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_choice, fail

Reduce = Callable[[Tensor], Tensor]
Kind = Literal["regression", "multiclass", "binary"]
METRICS_OF_KIND: dict[str, tuple[str, ...]] = {
    "regression": ("mae", "mae/std", "rmse", "r2"),
    "multiclass": ("accuracy", "balanced-accuracy", "macro-f1"),
    "binary": ("auroc", "ap", "accuracy", "macro-f1"),
}
KINDS = tuple(METRICS_OF_KIND)
# Whether larger is better.
METRICS = {name: name not in ("mae", "mae/std", "rmse") for names in METRICS_OF_KIND.values() for name in names}


@dataclass(frozen=True)
class Task:
    """A prediction task.

    Args:
        level: One prediction per ``"graph"``, per ``"node"``, or per ``"edge"``: a pair of nodes, joined or not.
        kind: ``"regression"`` (L1 loss; squares for ``"rmse"`` and ``"r2"``), ``"multiclass"`` (cross entropy) or
            ``"binary"``: one or several yes-no labels (binary cross entropy). NaN targets of regression and binary
            tasks, and negative classes, are ignored.
        outputs: Number of targets, or of classes for ``"multiclass"``.
        metric: One of `METRICS` that fits the kind.
        weighted: Weight classes against their frequency in the batch (multiclass).
        shift: Regression targets are predicted as (y - shift) / scale: one number, or one per target.
        scale: See ``shift``. ``"mae/std"`` is the error divided by it.
    """

    level: Literal["graph", "node", "edge"]
    kind: Kind
    outputs: int
    metric: str
    weighted: bool = False
    shift: float | Sequence[float] = 0.0
    scale: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        check_choice("level", self.level, ("graph", "node", "edge"))
        check_choice("kind", self.kind, KINDS)
        check_choice("metric", self.metric, METRICS_OF_KIND[self.kind])

    @property
    def higher_is_better(self) -> bool:
        return METRICS[self.metric]

    def better(self, new: float, old: float | None) -> bool:
        """Whether a score beats another; a score that is not a number beats none."""
        if new != new:
            return False
        return old is None or old != old or (new > old if self.higher_is_better else new < old)

    def targets(self, y: Tensor, rows: int) -> Tensor:
        """Raw targets in the form the loss takes: class numbers [rows], else floating point [rows, outputs]."""
        if self.kind == "multiclass":
            if y.numel() != rows:
                fail("y", f"one class number for each of {rows} {self.level}s", tuple(y.shape))
            return y.reshape(rows).long()
        if y.numel() != rows * self.outputs:
            fail("y", f"{self.outputs} targets for each of {rows} {self.level}s", tuple(y.shape))
        return y.reshape(rows, self.outputs).to(torch.get_default_dtype())

    def loss(
        self, prediction: Tensor, target: Tensor, mask: Tensor | None = None, reduce: Reduce | None = None
    ) -> Tensor:
        """The mean loss over all known targets of a batch.

        Args:
            prediction: Raw outputs of the model, [rows, outputs].
            target: As `targets` makes them; for classes also their probabilities, [rows, outputs].
            mask: Rows that count, [rows].
            reduce: Sums a statistic over the processes that share a batch; each then returns its part of the mean.
        """
        of_classes = self.kind == "multiclass"
        hard = of_classes and not target.is_floating_point()
        known = target >= 0 if hard else target.isfinite()
        if mask is not None:
            known = known & (mask if hard else mask.unsqueeze(1))
        target = torch.where(known, target, torch.zeros_like(target))
        if of_classes:
            each = F.cross_entropy(prediction, target, reduction="none") if hard else -prediction.log_softmax(dim=1)
        elif self.kind == "binary":
            each = F.binary_cross_entropy_with_logits(prediction, target.to(prediction.dtype), reduction="none")
        else:
            error = prediction - (target - _like(self.shift, target)) / _like(self.scale, target)
            each = error.square() if self.metric in ("rmse", "r2") else error.abs()
        # Of every known target, or, by probabilities, of every row as each of the classes.
        weight = target if of_classes and not hard else known.to(each.dtype)
        if of_classes and self.weighted:
            counts = weight.new_zeros(self.outputs).index_add(0, target, weight) if hard else weight.sum(0)
            counts = counts if reduce is None else reduce(counts)
            total = counts.sum().clamp(min=1.0)
            # The weight of a class falls with its share of the batch, as the SBM benchmarks define it.
            class_weights = torch.where(counts > 0, (total - counts) / total, 0.0)
            weight = weight * (class_weights[target] if hard else class_weights)
        count = weight.sum() if reduce is None else reduce(weight.sum())
        return (each * weight).sum() / count.clamp(min=torch.finfo(count.dtype).tiny)

    def score(self, raw: Tensor, target: Tensor, mask: Tensor | None = None) -> float:
        """The metric of raw outputs [rows, outputs] for targets as `targets` makes them; NaN where nothing is known.

        Binary tasks with several labels average over them (AUROC and AP over those that have both classes), R² over
        targets.
        """
        if mask is not None:
            raw, target = raw[mask], target[mask]
        raw = raw.float() if raw.dtype in (torch.bfloat16, torch.float16) else raw
        metric = _functional(self)
        if self.kind == "binary":
            # In the same order within (0, 1), where ranking metrics take them as they are: a sigmoid would saturate.
            squashed = 0.5 + 0.5 * F.softsign(raw.double())
            scores = []
            for values, labels in zip(squashed.unbind(1), target.unbind(1), strict=True):
                known = labels.isfinite()
                least = 0 if self.metric in ("auroc", "ap") else -1  # whatever the labels are
                if known.any() and least < int(labels[known].long().sum()) < int(known.sum()) - least:
                    scores.append(float(metric(values[known], labels[known].long())))
            return sum(scores) / len(scores) if scores else math.nan
        known = target >= 0 if self.kind == "multiclass" else target.isfinite()
        if self.kind == "regression":
            raw = self.predict(raw)
            target = target.to(raw.dtype)
        if self.metric == "mae/std":
            scale = _like(self.scale, raw)
            raw, target = raw / scale, target / scale
        if self.metric == "r2":
            columns = [(raw[rows, t], target[rows, t]) for t, rows in enumerate(known.unbind(1)) if int(rows.sum()) > 1]
            return sum(float(metric(*pair)) for pair in columns) / len(columns) if columns else math.nan
        return float(metric(raw[known], target[known])) if known.any() else math.nan

    def predict(self, raw: Tensor) -> Tensor:
        """Raw outputs of the model as values in the units of the data, class probabilities, or probabilities of yes."""
        if self.kind == "regression":
            return raw * _like(self.scale, raw) + _like(self.shift, raw)
        return raw.softmax(dim=1) if self.kind == "multiclass" else raw.sigmoid()

    def mean(self, raws: Sequence[Tensor]) -> Tensor:
        """Raw outputs of several models as one, whose `predict` is the mean of theirs."""
        stacked = torch.stack(list(raws))
        if self.kind == "regression":
            return stacked.mean(dim=0)
        if self.kind == "multiclass":
            return stacked.log_softmax(dim=2).logsumexp(dim=0) - math.log(len(stacked))
        # The odds of the mean probability: sums of p over sums of 1 - p.
        return F.logsigmoid(stacked).logsumexp(dim=0) - F.logsigmoid(-stacked).logsumexp(dim=0)


def _like(number: float | Sequence[float], values: Tensor) -> Tensor | float:
    """One number as it is, one number per column as a row, written by the device itself: a capture allows no copy."""
    return torch.stack([values.new_full((), one) for one in number]) if isinstance(number, Sequence) else number


def _functional(task: Task) -> Callable[[Tensor, Tensor], Tensor]:
    """The task's metric as a function of predictions and targets, all of them known."""
    from torchmetrics.functional import classification, regression

    classes = max(task.outputs, 2)
    functions: dict[str, Callable[..., Tensor]] = {
        "mae": regression.mean_absolute_error,
        "mae/std": regression.mean_absolute_error,
        "rmse": partial(regression.mean_squared_error, squared=False),
        "r2": regression.r2_score,
        "auroc": classification.binary_auroc,
        "ap": classification.binary_average_precision,
    }
    if task.kind == "binary":  # of one label at a time
        functions |= {"accuracy": classification.binary_accuracy, "macro-f1": classification.binary_f1_score}
        return functions[task.metric]
    functions |= {
        "accuracy": partial(classification.multiclass_accuracy, num_classes=classes, average="micro"),
        "balanced-accuracy": partial(_balanced_accuracy, classes=classes),
        "macro-f1": partial(classification.multiclass_f1_score, num_classes=classes, average="macro"),
    }
    return functions[task.metric]


def _balanced_accuracy(prediction: Tensor, target: Tensor, classes: int) -> Tensor:
    """The mean recall over the classes that occur."""
    hits = target[prediction.argmax(1) == target]
    support, found = (torch.bincount(rows, minlength=classes).double() for rows in (target, hits))
    return (found / support)[support > 0].mean()


def score_text(score: float | None, deviation: float | None = None) -> str:
    """A score, with its deviation over seeds: five decimals, or more where that is not three significant digits."""
    if score is None:
        return "unknown" if deviation is None else f"unknown ± {deviation:.5f}"
    digits = max(5, 2 - math.floor(math.log10(abs(score)))) if score and math.isfinite(score) else 5
    return f"{score:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def spread_text(spread: Mapping[str, Any]) -> str:
    """Mean and deviation over seeds, as `gssc.train.seeds.aggregate` has them; one score has no deviation."""
    several = sum(value is not None for value in spread["values"]) > 1
    return score_text(spread["mean"], spread["std"] if several else None)
