"""What is to be predicted: the loss to train with, the metric to report, and which direction is better."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_choice, fail

Kind = Literal["regression", "multiclass", "binary"]
KINDS = ("regression", "multiclass", "binary")
MetricName = Literal["mae", "mae/std", "rmse", "accuracy", "balanced-accuracy", "macro-f1", "auroc", "ap"]
# Whether larger is better.
METRICS: dict[str, bool] = {
    "mae": False,
    "mae/std": False,
    "rmse": False,
    "accuracy": True,
    "balanced-accuracy": True,
    "macro-f1": True,
    "auroc": True,
    "ap": True,
}
METRICS_OF_KIND: dict[str, tuple[str, ...]] = {
    "regression": ("mae", "mae/std", "rmse"),
    "multiclass": ("accuracy", "balanced-accuracy", "macro-f1"),
    "binary": ("auroc", "ap"),
}


@dataclass(frozen=True)
class Task:
    """A prediction task.

    Args:
        level: One prediction per ``"graph"`` or per ``"node"``.
        kind: ``"regression"`` (L1 loss), ``"multiclass"`` (cross entropy) or ``"binary"``: one or several yes-no labels
            (binary cross entropy). NaN targets of regression and binary tasks, and negative classes, are ignored.
        outputs: Number of targets, or of classes for ``"multiclass"``.
        metric: One of `METRICS` that fits the kind.
        weighted: Weight classes against their frequency in the batch (multiclass).
        shift: Regression targets are predicted as (y - shift) / scale: one number, or one per target.
        scale: See ``shift``. ``"mae/std"`` is the error divided by it.
    """

    level: Literal["graph", "node"]
    kind: Kind
    outputs: int
    metric: str
    weighted: bool = False
    shift: float | Sequence[float] = 0.0
    scale: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        check_choice("level", self.level, ("graph", "node"))
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
        self,
        prediction: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        reduce: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """The mean loss over all known targets of a batch.

        Args:
            prediction: Raw outputs of the model, [rows, outputs].
            target: As `targets` makes them; for classes also their probabilities, [rows, outputs].
            mask: Rows that count, [rows].
            reduce: Sums a statistic over the processes that share a batch; each then returns its part of the mean.
        """
        reduce = reduce or (lambda statistic: statistic)
        if self.kind != "multiclass":
            total, count = self._elementwise(prediction, target, mask)
        elif target.is_floating_point():
            total, count = self._probabilities(prediction, target, mask, reduce)
        else:
            total, count = self._multiclass(prediction, target, mask, reduce)
        return total / reduce(count.detach()).clamp(min=torch.finfo(count.dtype).tiny)

    def _elementwise(self, prediction: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        known = target.isfinite() if mask is None else target.isfinite() & mask.unsqueeze(1)
        target = torch.where(known, target, torch.zeros_like(target))
        if self.kind == "regression":
            error = prediction - (target - _like(self.shift, target)) / _like(self.scale, target)
            each = error.square() if self.metric == "rmse" else error.abs()
        else:
            each = F.binary_cross_entropy_with_logits(prediction, target.to(prediction.dtype), reduction="none")
        weight = known.to(each.dtype)
        return (each * weight).sum(), weight.sum()

    def _multiclass(
        self, prediction: Tensor, target: Tensor, mask: Tensor | None, reduce: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        known = target >= 0 if mask is None else (target >= 0) & mask
        target = torch.where(known, target, torch.zeros_like(target))
        weight = known.to(prediction.dtype)
        each = F.cross_entropy(prediction, target, reduction="none")
        if self.weighted:
            counts = torch.zeros(self.outputs, dtype=weight.dtype, device=weight.device).index_add(0, target, weight)
            weight = weight * _class_weights(reduce(counts))[target]
        return (each * weight).sum(), weight.sum()

    def _probabilities(
        self, prediction: Tensor, target: Tensor, mask: Tensor | None, reduce: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """As `_multiclass`, where each row belongs to every class in part."""
        part = target if mask is None else torch.where(mask.unsqueeze(1), target, torch.zeros_like(target))
        if self.weighted:
            part = part * _class_weights(reduce(part.detach().sum(0)))
        return -(part * prediction.log_softmax(dim=1)).sum(), part.sum()

    def make_metric(self, device: str | torch.device = "cpu") -> "RunningMetric":
        """An empty metric to be fed batch by batch."""
        return RunningMetric(self, device)

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


class RunningMetric:
    """The task's torchmetrics metric, fed with raw outputs and targets; unknown targets are left out."""

    def __init__(self, task: Task, device: str | torch.device) -> None:
        self.task = task
        columns = task.outputs if task.kind == "binary" else 1
        self.metrics = [_torchmetric(task).to(device) for _ in range(columns)]
        self.positives = torch.zeros(columns, dtype=torch.long, device=device)
        self.known = torch.zeros(columns, dtype=torch.long, device=device)

    def update(self, raw: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Add a batch: raw outputs [rows, outputs] and targets as `Task.targets` makes them."""
        if mask is not None:
            raw, target = raw[mask], target[mask]
        prediction = raw.float() if raw.dtype in (torch.bfloat16, torch.float16) else raw
        if self.task.kind == "multiclass":
            known = target >= 0
            self._feed(0, prediction[known], target[known])
        elif self.task.kind == "regression":
            known = target.isfinite()
            values = self.task.predict(prediction)
            target = target.to(values.dtype)
            if self.task.metric == "mae/std":
                scale = _like(self.task.scale, values)
                values, target = values / scale, target / scale
            self._feed(0, values[known], target[known])
        else:
            for column in range(len(self.metrics)):
                known = target[:, column].isfinite()
                labels = target[known, column].long()
                self._feed(column, _squashed(prediction[known, column]), labels)
                self.positives[column] += labels.sum()

    def _feed(self, column: int, prediction: Tensor, target: Tensor) -> None:
        """Some metrics of torchmetrics take no empty batch."""
        if target.numel():
            self.metrics[column].update(prediction, target)
            self.known[column] += target.numel()

    def compute(self) -> float:
        """The score of all that was added; binary tasks with several labels average over those with both classes.

        NaN where nothing is known.
        """
        if not self.known.any():
            return float("nan")
        if self.task.metric == "balanced-accuracy":
            confusion = self.metrics[0].compute().double()
            support = confusion.sum(1)
            return float((confusion.diagonal()[support > 0] / support[support > 0]).mean())
        if self.task.kind != "binary":
            return float(self.metrics[0].compute())
        usable = ((self.positives > 0) & (self.positives < self.known)).tolist()
        scores = [float(metric.compute()) for metric, usable_ in zip(self.metrics, usable, strict=True) if usable_]
        return sum(scores) / len(scores) if scores else float("nan")


def _like(number: float | Sequence[float], values: Tensor) -> Tensor | float:
    """One number as it is, one number per column as a row."""
    return torch.tensor(number, dtype=values.dtype, device=values.device) if isinstance(number, Sequence) else number


def _class_weights(counts: Tensor) -> Tensor:
    """The weight of a class falls with its share of the batch, as the SBM benchmarks define it; [classes]."""
    total = counts.sum().clamp(min=1.0)
    return torch.where(counts > 0, (total - counts) / total, 0.0)


def _squashed(logits: Tensor) -> Tensor:
    """Logits in the same order within (0, 1), where ranking metrics take them as they are: a sigmoid would saturate."""
    logits = logits.double()
    return 0.5 + 0.5 * logits / (1.0 + logits.abs())


def _torchmetric(task: Task) -> Any:
    from torchmetrics import classification, regression

    classes = max(task.outputs, 2)
    made: dict[str, Callable[[], Any]] = {
        "mae": regression.MeanAbsoluteError,
        "mae/std": regression.MeanAbsoluteError,
        "rmse": lambda: regression.MeanSquaredError(squared=False),
        "accuracy": lambda: classification.MulticlassAccuracy(classes, average="micro"),
        # The mean recall over the classes that occur follows from the counts.
        "balanced-accuracy": lambda: classification.MulticlassConfusionMatrix(classes),
        "macro-f1": lambda: classification.MulticlassF1Score(classes, average="macro"),
        "auroc": classification.BinaryAUROC,
        "ap": classification.BinaryAveragePrecision,
    }
    return made[task.metric]()


def score_text(score: float | None, deviation: float | None = None) -> str:
    """A score, with its deviation over seeds: five decimals, or more where that is not three significant digits."""
    if score is None:
        return "unknown" if deviation is None else f"unknown ± {deviation:.5f}"
    digits = max(5, 2 - math.floor(math.log10(abs(score)))) if score and math.isfinite(score) else 5
    return f"{score:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")
