"""What somebody's own data are: the task their targets make, the features their columns make, and their scales.

Targets ``y``

    one row per graph, or one per node            level of the task; ``edge_label`` beside ``edge_label_index``: edge
    integers, one column                          multiclass; negative: unknown
    truth values, or 0 and 1 (NaN: unknown;
      in one column of integers -1 as well)       binary, one label per column
    other floating point                          regression; NaN: unknown

Features ``x`` and ``edge_attr``: integers are categories, one vocabulary per column; floating point is continuous. Many
0/1 columns of integers (a bag of words) are continuous. Continuous columns are scaled:

    standard    minus mean, divided by deviation, of the training part
    row         every row of x divided by its sum (and edge_attr standardised)
    none        not at all
    auto        row where x is a bag of words: more than 32 columns, none negative, mostly zeros; else standard
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.datasets.flat import FlatGraphs, GraphDataset, pieces
from gssc.datasets.pairs import describe_pairs
from gssc.nn.encoders import Features
from gssc.tasks import KINDS, Kind, Task

MOST_CATEGORIES, MOST_CLASSES, MOST_CATEGORICAL_COLUMNS = 100_000, 1000, 32
Level = Literal["graph", "node", "edge"]
Scale = Literal["auto", "standard", "row", "none"]


def infer_level(y: Tensor, graphs: int, nodes: int, of_pairs: bool = False) -> tuple[Level, Tensor]:
    """Whether ``y`` speaks of graphs, of nodes or of pairs of nodes, and ``y`` as [rows, T]."""
    if of_pairs:
        return "edge", y
    if y.dim() == 0 or y.numel() == 0:
        fail("y", "a target for every graph or node", f"shape {list(y.shape)}")
    rows = y.shape[0]
    if y.dim() > 2:
        fail("y", "shape [rows] or [rows, targets]", list(y.shape))
    if rows not in (graphs, nodes):
        if y.dim() == 1 and rows % graphs == 0:
            fail("y", f"shape [1, {rows // graphs}] in every graph (several targets)", f"shape [{rows // graphs}]")
        fail("y", f"one row for each of {graphs} graphs or {nodes} nodes", f"{rows} rows")
    return "graph" if rows == graphs else "node", y.reshape(rows, -1)


def infer_task(
    y: Tensor, level: Level, kind: str | None = None, metric: str | None = None, names: Sequence[str] = ()
) -> tuple[Task, Tensor]:
    """The task of targets [rows, T], and the targets in the form it takes; ``kind`` and ``metric`` override.

    ``names`` are what errors call the T columns.
    """
    if kind is not None:
        check_choice("task", kind, KINDS)
    if y.is_floating_point() and bool(y.isinf().any()):
        fail("y", "finite numbers, or NaN where a target is unknown", f"{int(y.isinf().sum())} infinite ones")
    _check_known(y.isfinite(), "y", names)
    signed = kind in (None, "binary") and y.shape[1] == 1 and not y.is_floating_point() and not y.is_complex()
    if signed and y.dtype != torch.bool and int(y.min()) < 0 and bool((y == 0).any()) and int(y.max()) == 1:
        y = torch.where(y < 0, math.nan, y.double())  # integers have no other word for what is unknown
    zero_one = bool(((y == 0) | (y == 1) | (y != y)).all())
    chosen: Kind = kind or _kind(y, zero_one)  # type: ignore[assignment]
    outputs = y.shape[1]
    if chosen == "multiclass":
        if outputs != 1:
            fail("y", "one class number per row for a multiclass task", f"{outputs} columns")
        y = y.nan_to_num(-1.0) if y.is_floating_point() else y
        classes = y.long()
        if bool((y != classes).any()):
            fail("y", "class numbers for a multiclass task", "numbers with a fraction")
        outputs = int(classes.max()) + 1
        if outputs < 2:
            fail("y", "two or more classes", f"class {outputs - 1} only" if outputs else "no known class")
        if outputs > MOST_CLASSES and kind is None:
            fail("y", f"at most {MOST_CLASSES} classes (floating point, or data.task=regression, for numbers)", outputs)
    if chosen == "binary" and not zero_one:
        fail("y", "0, 1 and NaN for a binary task", f"values from {float(y.min())} to {float(y.max())}")
    default = {"regression": "mae", "multiclass": "accuracy", "binary": "auroc"}[chosen]
    task = Task(level, chosen, outputs, default if metric is None else metric)
    return task, task.targets(y, y.shape[0])


def _kind(y: Tensor, zero_one: bool) -> str:
    if y.is_complex():
        fail("y", "real numbers", y.dtype)
    both = bool((y == 0).any()) and bool((y == 1).any())
    if y.dtype == torch.bool or (zero_one and (y.is_floating_point() or y.shape[1] > 1 or both)):
        return "binary"
    if y.is_floating_point():
        return "regression"
    if y.shape[1] > 1:
        fail("y", "one column of classes, several of 0 and 1, or floating point", f"{y.shape[1]} columns of integers")
    return "multiclass"


def _check_known(known: Tensor, what: str, names: Sequence[str] = ()) -> None:
    """Nothing is learned from a column [rows, T] without a known target, and the loss of 0 would look like success."""
    columns = known.any(0).tolist()
    if not all(columns):
        column = columns.index(False)
        default = what if len(columns) == 1 else f"{what}, column {column}"
        fail(names[column] if names else default, "one or more known targets", "none")


def infer_features(values: Tensor | None, name: str) -> tuple[Features, Tensor | None]:
    """What the columns [rows, D] are (see `FeatureEncoder`), and the columns in the form it takes."""
    if values is None or values.shape[1] == 0:
        return None, None
    if values.is_complex():
        fail(name, "real numbers", values.dtype)
    bag_of_words = values.shape[1] > MOST_CATEGORICAL_COLUMNS and bool(((values == 0) | (values == 1)).all())
    if values.is_floating_point() or values.dtype == torch.bool or bag_of_words:
        return values.shape[1], continuous(values, name)
    values = values.long()
    if values.numel() and int(values.min()) < 0:
        fail(name, "categories from 0 upwards (floating point for numbers)", int(values.min()))
    largest = values.amax(0) if values.numel() else torch.zeros(values.shape[1], dtype=torch.long)
    if int(largest.max()) >= MOST_CATEGORIES:
        fail(name, f"categories below {MOST_CATEGORIES:,} (floating point for numbers)", int(largest.max()))
    return tuple((largest + 1).tolist()), values


def continuous(values: Tensor, name: str) -> Tensor:
    """Columns of finite numbers in the default type."""
    values = values.to(torch.get_default_dtype())
    if not bool(values.isfinite().all()):
        fail(name, "finite numbers", f"{int((~values.isfinite()).sum())} that are not")
    return values


def scale_to_training(dataset: GraphDataset, how: Scale = "standard") -> GraphDataset:
    """Continuous columns scaled, and regression targets shifted and scaled, by what the training part holds."""
    task, train = dataset.task, dataset.splits["train"]
    # Nothing can be learned of a target that no graph has, nor weights be selected by none.
    for part in [part for part in ("train", "val") if part in dataset.splits]:
        y = dataset.splits[part].counted_targets()
        known = (y >= 0).unsqueeze(1) if task.kind == "multiclass" else y.isfinite()
        _check_known(known if part == "train" else known.any(1, keepdim=True), f"y of the {part} part")
    per_node = train.mask if task.level == "node" else None
    for column, features, mask in (("x", dataset.node_features, per_node), ("edge_attr", dataset.edge_features, None)):
        if isinstance(features, int):
            x = getattr(train, column)
            chosen = ("row" if column == "x" and is_bag_of_words(x) else "standard") if how == "auto" else how
            if chosen == "row" and column == "x":
                if bool((x < 0).any()):
                    expected = "standard or none, or features from 0 upwards"
                    fail("data.scale", expected, f"row, and x from {float(x.min())}")
                dataset = scaled_like(dataset, column, ([], []))
            elif chosen != "none":
                dataset = standardized(dataset, column, mask)
    if task.kind == "regression":
        columns = [column[column.isfinite()].double() for column in train.counted_targets().T]
        shift = tuple(float(column.mean()) for column in columns)
        scale = tuple(float(column.std(unbiased=False)) or 1.0 for column in columns)
        several = len(columns) > 1
        task = replace(task, shift=shift if several else shift[0], scale=scale if several else scale[0])
    return replace(dataset, task=task)


def standardized(dataset: GraphDataset, column: str, mask: Tensor | None = None) -> GraphDataset:
    """Columns of all parts minus mean, divided by deviation, of the training part (of its rows that are marked)."""
    mean, std = moments(getattr(dataset.splits["train"], column), mask)
    # A column that hardly varies beside its own size, or around zero, is noise of rounding: it is shifted only.
    # Its own, not 1: a column in small units, say 1e-7, is as good as any.
    std = torch.where((std > 1e-6 * mean.abs()) & (std > 1e-12), std, torch.ones_like(std))
    return scaled_like(dataset, column, (mean.tolist(), std.tolist()))


def moments(values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and deviation of columns [rows, D], of the marked rows, in double precision; zeros where there is none."""
    parts = pieces(values)
    marks = [None] * len(parts) if mask is None else mask.split(len(parts[0]))
    kept = (part.double() if mark is None else part[mark].double() for part, mark in zip(parts, marks, strict=True))
    found = [(len(rows), rows.mean(0), rows.std(0, unbiased=False)) for rows in kept if len(rows)]
    if not found:
        return (torch.zeros(values.shape[1], dtype=torch.float64),) * 2
    counts, means, deviations = (torch.stack([torch.as_tensor(one[i]) for one in found]) for i in range(3))
    share = (counts.double() / counts.sum()).unsqueeze(1)
    mean = (share * means).sum(0)
    return mean, (share * (deviations.square() + (means - mean).square())).sum(0).sqrt()


def is_bag_of_words(x: Tensor) -> bool:
    """Whether columns [N, D] count words, or the like: many of them, none negative, mostly zeros."""
    if x.shape[1] <= MOST_CATEGORICAL_COLUMNS or not all(bool((piece >= 0).all()) for piece in pieces(x)):
        return False
    return 2 * sum(int((piece != 0).sum()) for piece in pieces(x)) < x.numel()


def scaled_like(dataset: GraphDataset, column: str, scale: tuple[list[float], list[float]]) -> GraphDataset:
    """All parts with a column scaled as `apply_scale` does it; where columns stay in files, that is done later."""
    known = replace(dataset, standardize={**dataset.standardize, column: scale})
    if dataset.mapped:
        return known
    scaled = cache(lambda raw: apply_scale(raw, *scale))  # parts that share one graph go on sharing it
    splits = {split: replace(flat, **{column: scaled(getattr(flat, column))}) for split, flat in dataset.splits.items()}
    return replace(known, splits=splits)


def apply_scale(values: Tensor, mean: list[float], std: list[float]) -> Tensor:
    """Columns minus mean, divided by deviation, in double precision, rounded to the default type at the end.

    Where both are empty, rows are divided by their sums, but for those of zeros.
    """
    if not mean:
        sums = values.double().sum(1, keepdim=True)
        return (values.double() / torch.where(sums > 0, sums, 1.0)).to(torch.get_default_dtype())
    shifted = values.double() - torch.tensor(mean, dtype=torch.float64)
    return (shifted / torch.tensor(std, dtype=torch.float64)).to(torch.get_default_dtype())


def ready(dataset: GraphDataset, column: str, rows: Tensor) -> Tensor:
    """Some rows of ``x`` or ``edge_attr`` of a mapped dataset, as a model takes them."""
    if not isinstance(dataset.node_features if column == "x" else dataset.edge_features, int):
        return rows.long()
    rows = continuous(rows, column)
    return apply_scale(rows, *dataset.standardize[column]) if column in dataset.standardize else rows


def describe(dataset: GraphDataset) -> str:
    """What was found in a dataset, in a few lines for people."""
    task = dataset.task
    parts = [
        f"{flat.num_graphs:,} {name}" if flat.mask is None else f"{int(flat.mask.sum()):,} {name} {task.level}s"
        for name, flat in dataset.splits.items()
    ]
    of_pairs = task.level == "edge"
    if of_pairs:
        parts = [f"{len(flat.y):,} {name} pairs" for name, flat in dataset.splits.items()]
    flats: dict[int, FlatGraphs] = {flat.edge_index.data_ptr(): flat for flat in dataset.splits.values()}
    sizes = ("num_graphs", "num_nodes", "num_edges")
    graphs, nodes, edges = (sum(getattr(flat, name) for flat in flats.values()) for name in sizes)
    size = f"{nodes / graphs:.1f} nodes and {edges / graphs:.1f} edges on average"
    if graphs == 1:
        size = f"{nodes:,} nodes and {edges:,} edges"
    what = {
        "regression": f"regression of {task.outputs} target{'s' * (task.outputs > 1)}",
        "multiclass": f"classification into {task.outputs} classes",
        "binary": f"{task.outputs} yes-no label{'s' * (task.outputs > 1)}",
    }[task.kind]
    weights = ", weighted" if any(flat.weight is not None for flat in flats.values()) else ""
    return (
        f"{dataset.name}: {graphs:,} graph{'s' * (graphs > 1)} ({', '.join(parts)}), {size}\n"
        f"task: {what} per {'pair of nodes' if of_pairs else task.level}, metric {task.metric}\n"
        f"nodes: {_features(dataset.node_features)}; edges: {_features(dataset.edge_features)}{weights}"
        + "".join(f"\n{line}" for line in (describe_pairs(dataset) if of_pairs else ()))
    )


def _features(features: Features) -> str:
    if features is None:
        return "no features"
    if isinstance(features, int):
        return f"{features} continuous column{'s' * (features > 1)}"
    sizes = ", ".join(str(size) for size in features)
    return f"{len(features)} categorical column{'s' * (len(features) > 1)} of {sizes} values"
