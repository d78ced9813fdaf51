import json
from dataclasses import replace

import pytest
import torch

from gssc.datasets.flat import FlatGraphs, GraphDataset, from_about
from gssc.datasets.infer import apply_scale, infer_features, infer_level, infer_task, scale_to_training
from gssc.tasks import Task

NAN = float("nan")


@pytest.mark.parametrize(
    ("y", "kind", "outputs", "metric"),
    [
        ([[0.5], [1.0], [2.0]], "regression", 1, "mae"),
        ([[0.5, NAN], [1.0, 2.0]], "regression", 2, "mae"),
        ([[0], [1], [2]], "multiclass", 3, "accuracy"),
        ([[0], [1], [-1]], "binary", 1, "auroc"),
        ([[0], [2], [-1]], "multiclass", 3, "accuracy"),
        ([[0.0], [1.0]], "binary", 1, "auroc"),
        ([[0.0, NAN], [1.0, 1.0]], "binary", 2, "auroc"),
        ([[0, 1], [1, 1]], "binary", 2, "auroc"),
        ([[True], [False]], "binary", 1, "auroc"),
    ],
)
def test_tasks_follow_from_targets(y, kind, outputs, metric):
    task, targets = infer_task(torch.tensor(y), "graph")
    assert (task.kind, task.outputs, task.metric) == (kind, outputs, metric)
    assert targets.shape == ((len(y),) if kind == "multiclass" else (len(y), outputs))


def test_overrides():
    y = torch.tensor([[0], [1], [5]])
    task, targets = infer_task(y, "node", "regression", "rmse")
    assert (task.level, task.kind, task.metric) == ("node", "regression", "rmse")
    assert targets.tolist() == [[0.0], [1.0], [5.0]]
    task, targets = infer_task(torch.tensor([[0.0], [NAN], [1.0]]), "graph", "multiclass")
    assert task.outputs == 2
    assert targets.tolist() == [0, -1, 1]


@pytest.mark.parametrize(
    ("y", "kind", "metric", "message"),
    [
        ([[0, 2], [1, 1]], None, None, "y: expected one column of classes"),
        ([[0.5]], "multiclass", None, "got numbers with a fraction"),
        ([[0.5]], "binary", None, "y: expected 0, 1 and NaN"),
        ([[0.5]], "regresion", None, "did you mean 'regression'"),
        ([[0.5]], None, "accuracy", "metric: expected one of 'mae'"),
        ([[0], [0]], None, None, "y: expected two or more classes, got class 0 only"),
        ([[-1], [-1]], None, None, "got no known class"),
        ([[0], [123456]], None, None, "at most 1000 classes .*data.task=regression"),
        ([[1, 2]], "multiclass", None, "one class number per row"),
        ([[NAN], [NAN]], None, None, "y: expected one or more known targets, got none"),
        ([[NAN], [NAN]], "regression", None, "y: expected one or more known targets, got none"),
        ([[0.5, NAN], [1.5, NAN]], None, None, "y, column 1: expected one or more known targets, got none"),
    ],
)
def test_targets_that_make_no_task(y, kind, metric, message):
    with pytest.raises(ValueError, match=message):
        infer_task(torch.tensor(y), "graph", kind, metric)


def test_rows_decide_the_level():
    assert infer_level(torch.zeros(3), 3, 9)[0] == "graph"
    assert infer_level(torch.zeros(9, 2), 3, 9)[0] == "node"
    with pytest.raises(
        ValueError, match=r"y: expected shape \[1, 4\] in every graph \(several targets\), got shape \[4\]"
    ):
        infer_level(torch.zeros(12), 3, 9)
    with pytest.raises(ValueError, match="one row for each of 3 graphs or 9 nodes, got 5 rows"):
        infer_level(torch.zeros(5), 3, 9)
    for shape in ((3, 1, 1), (0,)):
        with pytest.raises(ValueError, match="y: expected"):
            infer_level(torch.zeros(shape), 3, 9)


def test_features_follow_from_types():
    assert infer_features(torch.tensor([[0, 4], [2, 1]]), "x")[0] == (3, 5)
    assert infer_features(torch.tensor([[0.5, 1.0]]), "x")[0] == 2
    assert infer_features(torch.tensor([[True], [False]]), "x")[1].dtype == torch.float32
    words, values = infer_features(torch.eye(40, dtype=torch.long), "x")
    assert words == 40
    assert values.is_floating_point()
    assert infer_features(None, "x") == (None, None)
    for bad, message in (
        ([[-1]], "categories from 0 upwards"),
        ([[10**6]], "categories below 100,000"),
        ([[NAN]], "x: expected finite numbers, got 1 that are not"),
    ):
        with pytest.raises(ValueError, match=message):
            infer_features(torch.tensor(bad), "x")


def test_columns_are_scaled_whatever_their_unit():
    torch.manual_seed(0)
    noise = torch.randn(200, dtype=torch.float64)
    # A small unit, around zero and not; rounding noise on a large number; a constant; cancellation around zero.
    columns = [1e-7 * noise, 1e-7 * (noise + 3), 1e5 + 1e-3 * noise, torch.full((200,), 0.1), 1e-17 * noise]
    x = torch.stack([column.double() for column in columns], 1)
    flat = FlatGraphs(torch.tensor([0, 200]), torch.tensor([0, 0]), torch.zeros(2, 0).long(), x, None, noise[:1, None])
    dataset = scale_to_training(GraphDataset("mine", Task("graph", "binary", 1, "ap"), 5, None, {"train": flat}, {}))
    scaled = dataset.splits["train"].x
    assert scaled[:, :2].std(0, unbiased=False).tolist() == pytest.approx([1, 1])
    assert dataset.standardize["x"][1][2:] == [1, 1, 1]


def test_bags_of_words_are_divided_by_their_sum():
    torch.manual_seed(0)
    words = (torch.rand(20, 40) < 0.2).float()
    words[3] = 0.0
    flat = FlatGraphs(torch.tensor([0, 20]), torch.tensor([0, 0]), torch.zeros(2, 0).long(), words, None, words[:1, :1])

    def scaled(x, how):
        parts = {"train": replace(flat, x=x)}
        return scale_to_training(GraphDataset("mine", Task("graph", "binary", 1, "ap"), 40, None, parts, {}), how)

    dataset = scaled(words, "auto")
    assert dataset.splits["train"].x.sum(1).tolist() == pytest.approx([float(row.any()) for row in words])
    again = from_about(json.loads(json.dumps(dataset.about())))  # what predictions for new graphs begin with
    assert torch.equal(apply_scale(words, *again.standardize["x"]), dataset.splits["train"].x)
    assert torch.equal(scaled(words, "none").splits["train"].x, words)
    for x in (words - 0.5, words + 1, words[:, :30]):  # some negative, none zero, few columns
        assert len(scaled(x, "auto").standardize["x"][0]) == x.shape[1]
    with pytest.raises(ValueError, match=r"data\.scale: expected standard or none, .*, got row, and x from -0.5"):
        scaled(words - 0.5, "row")
