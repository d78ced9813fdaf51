"""Predictions as a table."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from gssc.files import write_atomic
from gssc.tasks import Task


def write_predictions(
    path: Path,
    values: Tensor,
    task: Task,
    ptr: Tensor,
    graphs: Sequence[int] | None = None,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Write one row per graph, or per node with the number of its graph; numbers keep all their digits.

    Args:
        path: The .csv file.
        values: What `Task.predict` gives, [rows, outputs].
        task: Names the columns.
        ptr: First node of every graph and, last, N: [G + 1].
        graphs: Numbers of the graphs; from 0 unless given.
        labels: More columns of texts, one for each graph.
    """
    names_of = dict(labels or {})
    given = range(ptr.numel() - 1) if graphs is None else graphs
    keys: list[str] = ["graph", *names_of]
    numbers: list[list[int | str]] = [[g, *(texts[i] for texts in names_of.values())] for i, g in enumerate(given)]
    if task.level == "node":
        keys = [*keys, "node"]
        counts = ptr.diff().tolist()
        numbers = [[*row, u] for row, count in zip(numbers, counts, strict=True) for u in range(count)]
    if task.kind == "multiclass":
        names = ["class", *(f"probability_{i}" for i in range(task.outputs))]
        rows = [[best, *row] for best, row in zip(values.argmax(1).tolist(), _digits(values), strict=True)]
    else:
        word = "prediction" if task.kind == "regression" else "probability"
        names = [word] if task.outputs == 1 else [f"{word}_{i}" for i in range(task.outputs)]
        rows = _digits(values)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, *names])
    writer.writerows([*number, *row] for number, row in zip(numbers, rows, strict=True))
    write_atomic(path, text.getvalue())


def _digits(values: Tensor) -> list[list[str]]:
    """The shortest decimals that read back as the same floating-point numbers."""
    array = values.numpy()
    return [[str(number) for number in row] for row in array]
