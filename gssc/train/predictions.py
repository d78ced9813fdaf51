"""Predictions as a table."""

import csv
import io
from pathlib import Path

from torch import Tensor

from gssc.files import write_atomic
from gssc.tasks import Task


def write_predictions(path: Path, values: Tensor, task: Task, ptr: Tensor) -> None:
    """Write one row per graph, or per node with the number of its graph; numbers keep all their digits.

    Args:
        path: The .csv file.
        values: What `Task.predict` gives, [rows, outputs].
        task: Names the columns.
        ptr: First node of every graph and, last, N: [G + 1].
    """
    if task.level == "graph":
        keys, numbers = ["graph"], [[g] for g in range(values.shape[0])]
    else:
        keys = ["graph", "node"]
        numbers = [[g, u] for g, count in enumerate(ptr.diff().tolist()) for u in range(count)]
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
