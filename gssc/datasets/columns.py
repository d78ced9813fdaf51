"""Columns of numbers as few bytes, bit for bit: how the arrays of a pack are stored."""

import lzma
import zlib
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
        _, first, numbers, counts = np.unique(whole_rows, return_index=True, return_inverse=True, return_counts=True)
        if len(first) <= MOST_DISTINCT:
            by_count = np.argsort(-counts, kind="stable")
            table = {f"{name}/{i}": column for i, column in enumerate(rows[first[by_count]].T)}
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

    Integers as what is above the smallest, floating point as its bits; then byte after byte of all numbers, the highest
    first, each sorted by the bytes before it (equal ones have similar next ones), in the shorter of LZMA and Huffman.
    """
    integers = values.view(f"u{values.itemsize}") if values.dtype.kind in "bf" else values
    low = int(integers.min()) if len(integers) else 0
    # Unsigned arithmetic wraps around, so that the full range of int64 is no special case.
    codes = integers.astype(np.int64).view(np.uint64) - np.uint64(low % 2**64)
    shifts = reversed(range(0, int(codes.max(initial=0)).bit_length(), 8))
    planes = [(codes[_stable_order(codes >> np.uint64(s + 8))] >> np.uint64(s)).astype(np.uint8) for s in shifts]
    streams = [_compress(plane.tobytes()) for plane in planes]
    how = {"dtype": str(values.dtype), "count": len(values), "low": low}
    return b"".join(data for _, data in streams), how | {"streams": [[kind, len(data)] for kind, data in streams]}


def decode_column(data: bytes, how: dict[str, Any], most: int) -> np.ndarray:
    """What `encode_column` was given, if that is at most so many numbers."""
    dtype, count, start = np.dtype(how["dtype"]), int(how["count"]), 0
    if dtype.kind not in "biuf" or not 0 <= count <= most or len(how["streams"]) > 8:
        raise ValueError(f"no column of {count} {dtype}")
    codes = np.zeros(count, dtype=np.uint64)
    for kind, size in how["streams"]:
        plane = np.frombuffer(_decompress(kind, data[start : start + size], count), dtype=np.uint8)
        order = _stable_order(codes)
        codes <<= np.uint64(8)
        codes[order] |= plane
        start += size
    integers = (codes + np.uint64(int(how["low"]) % 2**64)).view(np.int64)
    return integers.astype(f"u{dtype.itemsize}").view(dtype) if dtype.kind in "bf" else integers.astype(dtype)


def _stable_order(codes: np.ndarray) -> np.ndarray:
    # In the smallest type, since NumPy sorts one and two bytes by counting.
    return np.argsort(codes.astype(np.min_scalar_type(codes.max(initial=0))), kind="stable")


def _compress(raw: bytes) -> tuple[str, bytes]:
    huffman = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    packed = huffman.compress(raw) + huffman.flush()
    other = lzma.compress(raw, lzma.FORMAT_RAW, filters=LZMA)
    return ("huffman", packed) if len(packed) <= len(other) else ("lzma", other)


def _decompress(kind: str, data: bytes, size: int) -> bytes:
    """Exactly ``size`` bytes, and never more, whatever the file says."""
    try:
        if kind == "lzma":
            data = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA).decompress(data, max_length=size + 1)
        else:
            data = zlib.decompressobj(-15).decompress(data, size + 1)
    except (lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"a column that does not unpack ({error})") from error
    if len(data) != size:
        raise ValueError(f"a column of {len(data)} bytes instead of {size}")
    return data
