"""Arrays of numbers as few bytes, bit for bit: how a pack stores them."""

import lzma
import math
from typing import Any

import numpy as np

LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "pb": 0}]
MOST_DISTINCT = 1 << 16
Columns = dict[str, np.ndarray]


def split_rows(name: str, values: np.ndarray) -> Columns:
    """An array as a table of its distinct rows, most frequent first, and the numbers of them; or as it is."""
    if values.size > len(values) or (values.size and values.dtype.kind == "f"):
        rows = np.ascontiguousarray(values).reshape(len(values), -1)
        whole_rows = rows.view(f"V{rows.itemsize * rows.shape[1]}").reshape(-1)
        sample = whole_rows[: 4 * MOST_DISTINCT]
        if len(np.unique(sample)) * 4 <= len(sample):
            _, examples, numbers, counts = np.unique(
                whole_rows, return_index=True, return_inverse=True, return_counts=True
            )
            if len(examples) <= MOST_DISTINCT:
                by_count = np.argsort(-counts, kind="stable")
                return {f"{name}/row": np.argsort(by_count)[numbers], name: values[examples[by_count]]}
    return {name: values}


def join_rows(name: str, columns: Columns, shape: list[int]) -> np.ndarray:
    """The array that `split_rows` was given, if it is no larger than this shape."""
    values, numbers = columns[name], columns.get(f"{name}/row")
    if numbers is None:
        return values
    if numbers.size * math.prod(values.shape[1:]) > math.prod(shape):
        raise ValueError(f"rows that do not fit {name}")
    return values[numbers]


def encode_array(values: np.ndarray) -> tuple[bytes, dict[str, Any]]:
    """Numbers as bytes, and how to read them.

    Integers as what is above the smallest, floating point as its bits; column after column, the lowest byte of all
    numbers, then the next one, as many as are needed, in LZMA.
    """
    flat = np.ascontiguousarray(values.T).reshape(-1)
    integers = flat.view(f"u{flat.itemsize}") if flat.dtype.kind in "bf" else flat
    low = int(integers.min()) if len(integers) else 0
    # Unsigned arithmetic wraps around, so that the full range of int64 is no special case.
    codes = integers.astype(np.int64).view(np.uint64) - np.uint64(low % 2**64)
    shifts = range(0, int(codes.max(initial=0)).bit_length(), 8)
    planes = b"".join((codes >> np.uint64(shift)).astype(np.uint8).tobytes() for shift in shifts)
    data = lzma.compress(planes, lzma.FORMAT_RAW, filters=LZMA) if planes else b""
    return data, {"dtype": str(values.dtype), "shape": list(values.shape), "low": low, "bytes": len(shifts)}


def decode_array(data: bytes, how: dict[str, Any], most: int) -> np.ndarray:
    """What `encode_array` was given, if that is at most so many numbers."""
    dtype, shape, size = np.dtype(how["dtype"]), [int(length) for length in how["shape"]], int(how["bytes"])
    count = math.prod(shape)
    if dtype.kind not in "biuf" or min(shape) < 0 or count > most or not 0 <= size <= 8:
        raise ValueError(f"no array of {shape} {dtype}")
    try:
        # Never more than there should be, whatever is in the file.
        planes = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA).decompress(data, max_length=size * count + 1)
    except lzma.LZMAError as error:
        raise ValueError(f"an array that does not unpack ({error})") from error
    if len(planes) != size * count:
        raise ValueError(f"an array of {len(planes)} bytes instead of {size * count}")
    codes = np.full(count, int(how["low"]) % 2**64, dtype=np.uint64)
    for number, plane in enumerate(np.frombuffer(planes, dtype=np.uint8).reshape(size, count)):
        codes += plane.astype(np.uint64) << np.uint64(8 * number)
    integers = codes.view(np.int64)
    flat = integers.astype(f"u{dtype.itemsize}").view(dtype) if dtype.kind in "bf" else integers.astype(dtype)
    return flat.reshape(shape[::-1]).T
