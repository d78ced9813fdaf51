"""Arrays of one or more columns as coded columns: column by column, or as numbers in a table of the distinct rows."""

from typing import Any

import numpy as np

from gssc.datasets.columns import Coded, as_whole, decode_column, encode_column


def encode_rows(name: str, values: np.ndarray | None, columns: dict[str, Coded]) -> dict[str, Any] | None:
    """Add the coded columns of an array [rows] or [rows, D] under names that begin with ``name``; says how."""
    if values is None:
        return None
    if values.ndim == 1:
        columns[name] = encode_column(values)
        return {"as": "column"}
    plain = {f"{name}/{i}": encode_column(np.ascontiguousarray(column)) for i, column in enumerate(values.T)}
    how = {"as": "columns", "width": values.shape[1], "dtype": str(values.dtype)}
    table = _distinct(values) if values.shape[1] > 1 else None
    if table is not None:
        distinct, numbers = table
        coded = {f"{name}/{i}": encode_column(np.ascontiguousarray(column)) for i, column in enumerate(distinct.T)}
        coded[f"{name}/row"] = encode_column(numbers)
        if _size(coded) < _size(plain):
            columns |= coded
            return {**how, "as": "table"}
    columns |= plain
    return how


def decode_rows(name: str, how: dict[str, Any] | None, columns: dict[str, Coded]) -> np.ndarray | None:
    """What `encode_rows` was given."""
    if how is None:
        return None
    if how["as"] == "column":
        return decode_column(*columns[name])
    width = int(how["width"])
    parts = [decode_column(*columns[f"{name}/{i}"]) for i in range(width)]
    values = np.stack(parts, axis=1) if parts else np.zeros((0, 0), dtype=how["dtype"])
    return values[decode_column(*columns[f"{name}/row"])] if how["as"] == "table" else values


def _distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Distinct rows of small whole numbers, and the number of each row; None where that would not help."""
    whole = values.astype(np.int64) if values.dtype.kind != "f" else as_whole(values)
    if whole is None or len(whole) == 0:
        return None
    low = whole.min(axis=0)
    span = [int(s) for s in whole.max(axis=0) - low + 1]
    if np.prod([float(s) for s in span]) > 2.0**62:
        return None
    key = np.zeros(len(whole), dtype=np.int64)
    for column, smallest, count in zip(whole.T, low, span, strict=True):
        key = key * count + (column - smallest)
    _, first, numbers = np.unique(key, return_index=True, return_inverse=True)
    return (values[first], numbers) if len(first) <= 1 << 16 else None


def _size(coded: dict[str, Coded]) -> int:
    # A column without bytes still has its line in the header.
    return sum(len(data) + 100 for data, _ in coded.values())
