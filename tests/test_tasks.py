import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics

from gssc.tasks import METRICS_OF_KIND, Task, score_text

ROWS = 60


def task_of(metric, outputs=1, **options):
    kind = next(kind for kind, names in METRICS_OF_KIND.items() if metric in names)
    return Task("graph", kind, outputs, metric, **options)


# Losses


def test_regression_is_the_mean_absolute_error_of_scaled_targets():
    task = task_of("mae", 2, shift=(1.0, -2.0), scale=(2.0, 0.5))
    raw, target = torch.randn(ROWS, 2), torch.randn(ROWS, 2)
    scaled = (target - torch.tensor([1.0, -2.0])) / torch.tensor([2.0, 0.5])
    torch.testing.assert_close(task.loss(raw, target), (raw - scaled).abs().mean())
    torch.testing.assert_close(task_of("rmse", 2).loss(raw, target), F.mse_loss(raw, target))
    torch.testing.assert_close(task.predict(scaled), target)


@pytest.mark.parametrize("metric", ["mae", "rmse", "auroc", "ap"])
def test_unknown_targets_and_masked_rows_do_not_count(metric):
    task, raw = task_of(metric, 3), torch.randn(ROWS, 3, requires_grad=True)
    target, mask = (torch.rand(ROWS, 3) > 0.5).float(), torch.rand(ROWS) > 0.3
    target[torch.rand(ROWS, 3) > 0.7] = math.nan
    loss = task.loss(raw, target, mask)
    known = target.isfinite() & mask.unsqueeze(1)
    plain = {"mae": F.l1_loss, "rmse": F.mse_loss}.get(metric, F.binary_cross_entropy_with_logits)
    torch.testing.assert_close(loss, plain(raw[known], target[known]))
    (gradient,) = torch.autograd.grad(loss, raw)
    assert gradient.isfinite().all()
    assert not gradient[~known].any()


def test_multiclass_is_cross_entropy_of_the_known_rows():
    task, raw = task_of("accuracy", 4), torch.randn(ROWS, 4)
    target, mask = torch.randint(-1, 4, (ROWS,)), torch.rand(ROWS) > 0.3
    known = (target >= 0) & mask
    torch.testing.assert_close(task.loss(raw, target, mask), F.cross_entropy(raw[known], target[known]))


def test_classes_are_weighted_against_their_frequency():
    """The weight of class c is (V - n_c) / V, and zero where it does not occur, in a weighted mean."""
    task, raw = task_of("balanced-accuracy", 5, weighted=True), torch.randn(ROWS, 5)
    target = torch.randint(0, 4, (ROWS,))
    mask = torch.rand(ROWS) > 0.4
    counts = torch.bincount(target[mask], minlength=5).float()
    weights = (counts.sum() - counts) / counts.sum() * (counts > 0)
    torch.testing.assert_close(task.loss(raw, target, mask), F.cross_entropy(raw[mask], target[mask], weights))


@pytest.mark.parametrize(
    "task",
    [
        task_of("mae", 2),
        task_of("auroc", 2),
        task_of("accuracy", 3),
        task_of("macro-f1", 3, weighted=True),
    ],
    ids=lambda task: f"{task.metric} {task.weighted}",
)
def test_parts_of_a_batch_that_share_their_counts_add_up_to_its_loss(task):
    raw = torch.randn(ROWS, task.outputs, dtype=torch.float64)
    mask = torch.rand(ROWS) > 0.3
    if task.kind == "multiclass":
        target = torch.randint(-1, task.outputs, (ROWS,))
    else:
        target = (torch.rand(ROWS, task.outputs, dtype=torch.float64) > 0.5).double()
        target[torch.rand(ROWS, task.outputs) > 0.8] = math.nan
    halves = [slice(0, 17), slice(17, ROWS)]
    assert sum(losses_in_step(task, raw, target, mask, halves)) == pytest.approx(
        float(task.loss(raw, target, mask)), rel=1e-12
    )


def losses_in_step(task, raw, target, mask, halves):
    """What processes would return that sum each statistic over all of them."""
    sums: list[torch.Tensor] = []
    # Each pass over the halves makes the sum of one more statistic known.
    for _ in range(3):
        seen: list[list[torch.Tensor]] = [[] for _ in halves]
        results = [
            float(task.loss(raw[half], target[half], mask[half], partial(summed, sums, own)))
            for half, own in zip(halves, seen, strict=True)
        ]
        sums = [sum(statistics) for statistics in zip(*seen, strict=True)]
    return results


def summed(sums, seen, statistic):
    seen.append(statistic)
    return sums[len(seen) - 1] if len(seen) <= len(sums) else statistic


def test_a_batch_without_known_targets_has_no_loss():
    for task in (task_of("mae"), task_of("auroc")):
        raw = torch.randn(3, 1, requires_grad=True)
        loss = task.loss(raw, torch.full((3, 1), math.nan))
        loss.backward()
        assert loss.item() == 0.0
        assert not raw.grad.any()
    assert task_of("accuracy", 3).loss(torch.randn(2, 3), torch.tensor([-1, -1])).item() == 0.0


# Scores


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("metric", ["mae", "mae/std", "rmse"])
def test_regression_scores_are_those_of_scikit_learn_in_units_of_the_data(metric, outputs):
    scale = [2.0, 0.5, 3.0][:outputs]
    task = task_of(metric, outputs, shift=[1.0] * outputs, scale=scale)
    raw, target = torch.randn(ROWS, outputs), torch.randn(ROWS, outputs)
    target[torch.rand(ROWS, outputs) > 0.8] = math.nan
    mask = torch.rand(ROWS) > 0.3
    known = target.isfinite() & mask.unsqueeze(1)
    values, truth = task.predict(raw), target
    if metric == "mae/std":
        values, truth = values / torch.tensor(scale), truth / torch.tensor(scale)
    reference = metrics.root_mean_squared_error if metric == "rmse" else metrics.mean_absolute_error
    expected = reference(truth[known].numpy(), values[known].numpy())
    assert task.score(raw, target, mask) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("classes", [3, 6])
@pytest.mark.parametrize("metric", ["accuracy", "balanced-accuracy", "macro-f1"])
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true:UserWarning")
def test_multiclass_scores_are_those_of_scikit_learn(metric, classes):
    task = task_of(metric, classes)
    raw = torch.randn(ROWS, classes)
    # The last class occurs in the predictions alone, and of six the one before it not at all.
    target = torch.randint(-1, classes - 1, (ROWS,))
    if classes == 6:
        raw[:, 4] = -100.0
        target[target == 4] = 0
    mask = torch.rand(ROWS) > 0.2
    known = (target >= 0) & mask
    truth, predicted = target[known].numpy(), raw.argmax(1)[known].numpy()
    expected = {
        "accuracy": metrics.accuracy_score,
        "balanced-accuracy": metrics.balanced_accuracy_score,
        "macro-f1": lambda *pair: metrics.f1_score(*pair, average="macro"),
    }[metric](truth, predicted)
    assert task.score(raw, target, mask) == pytest.approx(expected, rel=1e-6)


def binary_case(kind, columns):
    raw = torch.randn(ROWS, columns)
    target = (torch.rand(ROWS, columns) > 0.6).float()
    if kind == "ties":
        raw = raw.round()
    if kind == "saturated":
        # A sigmoid in single precision maps all of these to 1, or to 0.
        raw = torch.where(raw > 0, 100.0, -200.0) + 20 * raw
    if kind == "missing":
        target[torch.rand(ROWS, columns) > 0.6] = math.nan
        target[:7] = math.nan  # all of the first batch
    if kind == "one class":
        target[:, 0] = 1.0
        target[:, -1] = 0.0
    return raw, target


BINARY = {"auroc": metrics.roc_auc_score, "ap": metrics.average_precision_score}


@pytest.mark.parametrize("kind", ["plain", "ties", "saturated", "missing", "one class"])
@pytest.mark.parametrize("metric", ["auroc", "ap"])
@pytest.mark.parametrize("columns", [1, 4])
def test_binary_scores_are_those_of_scikit_learn(metric, kind, columns):
    raw, target = binary_case(kind, columns)
    scores = []
    for column in range(columns):
        known = target[:, column].isfinite()
        truth = target[known, column].numpy()
        if len(np.unique(truth)) == 2:
            scores.append(BINARY[metric](truth, raw[known, column].numpy()))
    found = task_of(metric, columns).score(raw, target)
    if scores:
        assert found == pytest.approx(np.mean(scores), rel=1e-6)
    else:
        assert math.isnan(found)


@pytest.mark.parametrize("kind", ["plain", "missing", "one class"])
def test_yes_no_labels_are_also_scored_as_classes(kind):
    raw, target = binary_case(kind, 3)
    for metric, reference in (("accuracy", metrics.accuracy_score), ("macro-f1", metrics.f1_score)):
        task = Task("graph", "binary", 3, metric)
        known = [column.isfinite() for column in target.T]
        expected = [reference(target[k, i], raw[k, i] > 0) for i, k in enumerate(known) if k.any()]
        assert task.score(raw, target) == pytest.approx(np.mean(expected), rel=1e-6)
        assert task.higher_is_better


def test_r2_is_the_mean_over_targets():
    task = task_of("r2", 2, shift=(1.0, -2.0), scale=(2.0, 0.5))
    raw, target = torch.randn(ROWS, 2), torch.randn(ROWS, 2)
    target[::3, 1] = math.nan
    values, known = task.predict(raw), target.isfinite()
    expected = [metrics.r2_score(target[k, i], values[k, i]) for i, k in enumerate(known.T)]
    assert task.score(raw, target) == pytest.approx(np.mean(expected), rel=1e-5)
    assert task.better(0.5, -1.0)
    assert math.isnan(task.score(raw[:1], target[:1]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("metric", "name", "key", "columns"),
    [("auroc", "ogbg-molhiv", "rocauc", 1), ("ap", "ogbg-molpcba", "ap", 128)],
)
@pytest.mark.parametrize("kind", ["plain", "ties", "saturated", "missing"])
def test_binary_scores_are_those_of_ogb(metric, name, key, columns, kind):
    evaluators = pytest.importorskip("ogb.graphproppred", reason="ogb is not installed", exc_type=ImportError)
    raw, target = binary_case(kind, columns)
    expected = evaluators.Evaluator(name).eval({"y_true": target.numpy(), "y_pred": raw.numpy()})[key]
    assert task_of(metric, columns).score(raw, target) == pytest.approx(expected, rel=1e-6)


def test_a_mask_hides_rows_from_binary_scores():
    raw, target = binary_case("plain", 2)
    mask = torch.rand(ROWS) > 0.5
    kept = [BINARY["auroc"](target[mask, column], raw[mask, column]) for column in range(2)]
    assert task_of("auroc", 2).score(raw, target, mask) == pytest.approx(np.mean(kept), rel=1e-6)


@pytest.mark.parametrize("metric", ["mae", "accuracy", "auroc"])
def test_low_precision_outputs_are_scored(metric):
    raw = torch.randn(ROWS, 2).bfloat16()
    target = torch.randint(0, 2, (ROWS,)) if metric == "accuracy" else torch.randint(0, 2, (ROWS, 2)).float()
    task = task_of(metric, 2)
    assert task.score(raw, target) == pytest.approx(task.score(raw.float(), target), rel=1e-6)


@pytest.mark.parametrize("metric", ["mae", "accuracy", "balanced-accuracy", "auroc"])
def test_nothing_known_gives_no_score(metric):
    task = task_of(metric, 2)
    unknown = torch.full((4,), -1) if task.kind == "multiclass" else torch.full((4, 2), math.nan)
    assert math.isnan(task.score(torch.randn(4, 2), unknown))
    assert math.isnan(task.score(torch.randn(0, 2), unknown[:0]))


# Tasks


def test_better_scores():
    low, high = task_of("mae"), task_of("auroc")
    assert low.better(0.1, 0.2)
    assert not low.better(0.2, 0.1)
    assert high.better(0.2, 0.1)
    assert not high.better(0.1, 0.2)
    for task, score in itertools.product((low, high), (0.0, -1.0, math.inf)):
        assert task.better(score, None)
        assert task.better(score, math.nan)
        assert not task.better(score, score)
        assert not task.better(math.nan, score)
    assert not low.better(math.nan, None)


def test_targets_take_the_form_of_the_loss():
    assert task_of("accuracy", 3).targets(torch.tensor([[1], [2]]), 2).tolist() == [1, 2]
    values = task_of("mae", 2).targets(torch.arange(4), 2)
    assert values.shape == (2, 2)
    assert values.dtype == torch.get_default_dtype()
    with pytest.raises(ValueError, match="y: expected 2 targets for each of 3 graphs"):
        task_of("mae", 2).targets(torch.zeros(4), 3)
    with pytest.raises(ValueError, match="y: expected one class number for each of 3 graphs"):
        task_of("accuracy", 2).targets(torch.zeros(4), 3)


def test_a_metric_must_fit_its_kind():
    with pytest.raises(ValueError, match="metric: expected one of 'mae', 'mae/std', 'rmse', 'r2', got 'auroc'"):
        Task("graph", "regression", 1, "auroc")


def test_probabilities():
    assert torch.equal(task_of("auroc").predict(torch.zeros(1, 1)), torch.full((1, 1), 0.5))
    torch.testing.assert_close(task_of("accuracy", 4).predict(torch.zeros(1, 4)), torch.full((1, 4), 0.25))


def test_scores_have_five_decimals_or_three_significant_digits():
    assert score_text(0.694051) == "0.69405"
    assert score_text(0.00009614, 0.0000051) == "0.0000961 ± 0.0000051"
    assert score_text(0.77682, 0.01541) == "0.77682 ± 0.01541"
    assert (score_text(0.0), score_text(None), score_text(None, 0.0)) == ("0.00000", "unknown", "unknown ± 0.00000")


@pytest.mark.parametrize(("metric", "outputs"), [("mae", 2), ("accuracy", 3), ("ap", 2)])
def test_the_mean_of_predictions(metric, outputs):
    task = task_of(metric, outputs, shift=0.5, scale=2.0)
    raws = [40 * torch.randn(5, outputs, dtype=torch.float64) for _ in range(3)]
    expected = torch.stack([task.predict(raw) for raw in raws]).mean(0)
    together = task.mean(raws)
    torch.testing.assert_close(task.predict(together), expected, rtol=1e-12, atol=1e-12)
    assert together.isfinite().all()
