"""Columns of numbers as few bytes, bit for bit: how the arrays of a pack are stored."""

import lzma
from typing import Any

import numpy as np

LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "pb": 0}]
MOST_DISTINCT = 1 << 16
Columns = dict[str, np.ndarray]


def split_columns(name: str, values: np.ndarray) -> Columns:
    """An array as the numbers of its rows in a table of the distinct ones, most frequent first, or as its columns."""
    rows = np.ascontiguousarray(values[:, None] if values.ndim == 1 else values)
    whole_rows = rows.view(f"V{rows.itemsize * rows.shape[1]}").reshape(-1) if rows.size else rows
    single_integers = rows.shape[1] == 1 and rows.dtype.kind != "f"
    few = len(np.unique(whole_rows[: 4 * MOST_DISTINCT])) * 4 <= min(len(rows), 4 * MOST_DISTINCT)
    if few and rows.size and not single_integers:
        _, examples, numbers, counts = np.unique(whole_rows, return_index=True, return_inverse=True, return_counts=True)
        if len(examples) <= MOST_DISTINCT:
            by_count = np.argsort(-counts, kind="stable")
            table = {f"{name}/{i}": column for i, column in enumerate(rows[examples[by_count]].T)}
            return {f"{name}/row": np.argsort(by_count)[numbers], **table}
    return {f"{name}/{i}": column for i, column in enumerate(rows.T)}


def join_columns(name: str, columns: Columns, dtype: str, shape: list[int]) -> np.ndarray:
    """The array of this type and shape that `split_columns` was given."""
    width = shape[1] if len(shape) == 2 else 1
    rows = np.zeros((shape[0], 0), dtype)
    if width:
        rows = np.stack([columns[f"{name}/{i}"] for i in range(width)], axis=1)
    if f"{name}/row" in columns:
        rows = rows[columns[f"{name}/row"]]
    return rows if len(shape) == 2 else rows[:, 0]


def encode_column(values: np.ndarray) -> tuple[bytes, dict[str, Any]]:
    """One-dimensional numbers as bytes, and how to read them.

    Integers as what is above the smallest, floating point as its bits; the lowest byte of all numbers, then the next
    one, as many as are needed, in LZMA.
    """
    integers = values.view(f"u{values.itemsize}") if values.dtype.kind in "bf" else values
    low = int(integers.min()) if len(integers) else 0
    # Unsigned arithmetic wraps around, so that the full range of int64 is no special case.
    codes = integers.astype(np.int64).view(np.uint64) - np.uint64(low % 2**64)
    shifts = range(0, int(codes.max(initial=0)).bit_length(), 8)
    planes = b"".join((codes >> np.uint64(shift)).astype(np.uint8).tobytes() for shift in shifts)
    data = lzma.compress(planes, lzma.FORMAT_RAW, filters=LZMA) if planes else b""
    return data, {"dtype": str(values.dtype), "count": len(values), "low": low, "bytes": len(shifts)}


def decode_column(data: bytes, how: dict[str, Any], most: int) -> np.ndarray:
    """What `encode_column` was given, if that is at most so many numbers."""
    dtype, count, size = np.dtype(how["dtype"]), int(how["count"]), int(how["bytes"])
    if dtype.kind not in "biuf" or not 0 <= count <= most or not 0 <= size <= 8:
        raise ValueError(f"no column of {count} {dtype}")
    try:
        # Never more than there should be, whatever is in the file.
        planes = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA).decompress(data, max_length=size * count + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"a column that does not unpack ({error})") from error
    if len(planes) != size * count:
        raise ValueError(f"a column of {len(planes)} bytes instead of {size * count}")
    codes = np.full(count, int(how["low"]) % 2**64, dtype=np.uint64)
    for number, plane in enumerate(np.frombuffer(planes, dtype=np.uint8).reshape(size, count)):
        codes += plane.astype(np.uint64) << np.uint64(8 * number)
    integers = codes.view(np.int64)
    return integers.astype(f"u{dtype.itemsize}").view(dtype) if dtype.kind in "bf" else integers.astype(dtype)
