"""One column of numbers as few bytes as they get, bit for bit: how every array of a pack is coded.

A column passes through at most three steps, each recorded in a small JSON-able ``how``:

1. as integers: integers and truth values as they are; floating point as whole numbers, as float16 (times a divisor),
   as numbers in a table of the distinct values, or else as their bit patterns;
2. as bytes: the smallest width above the smallest value, as they are or as differences, byte plane by byte plane;
3. as LZMA streams, or as they are where that is no longer.

Floating-point candidates are taken only where they give back every bit, signs of zeros and NaNs included.
"""

import lzma
import zlib
from typing import Any

import numpy as np

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
# Coordinates are often float16 numbers divided by the side of an image, colours whole numbers divided by 255.
DIVISORS = (1, 28, 32, 255)
SAMPLE = 1 << 20
Coded = tuple[bytes, dict[str, Any]]


def encode_column(values: np.ndarray) -> Coded:
    """The bytes of a one-dimensional array, and how to read them."""
    how: dict[str, Any] = {"dtype": str(values.dtype), "count": len(values)}
    if values.dtype.kind in "bui":
        data, how["integers"] = _encode_integers(values.astype(np.int64))
        return data, how
    for divisor in DIVISORS:
        codes = _as_half(values, divisor)
        if codes is not None:
            whole = as_whole(values) if divisor == 1 else None
            how["float"] = "half" if whole is None else "whole"
            how["divisor"] = divisor
            data, how["integers"] = _encode_integers(codes if whole is None else whole)
            return data, how
    whole = as_whole(values)
    if whole is not None:
        how["float"] = "whole"
        data, how["integers"] = _encode_integers(whole)
        return data, how
    bits = _bits(values)
    table, numbers = np.unique(bits, return_inverse=True)
    if len(table) * 4 <= len(bits):
        how["float"] = "table"
        first, how["table"] = _encode_integers(table)
        how["table"]["distinct"] = len(table)
        second, how["integers"] = _encode_integers(numbers)
        how["split"] = len(first)
        return first + second, how
    how["float"] = "bits"
    data, how["integers"] = _encode_integers(bits)
    return data, how


def decode_column(data: bytes, how: dict[str, Any]) -> np.ndarray:
    """What `encode_column` was given."""
    count, name = int(how["count"]), how["dtype"]
    if name not in DTYPES or count < 0:
        raise ValueError(f"no column of {count} {name}")
    dtype = np.dtype(name)
    if dtype.kind in "bui":
        return _decode_integers(data, how["integers"], count).astype(dtype, copy=False)
    kind, start = how["float"], int(how.get("split", 0))
    numbers = _decode_integers(data[start:], how["integers"], count)
    if kind == "whole":
        return numbers.astype(dtype)
    if kind == "half":
        return numbers.astype(np.uint16).view(np.float16).astype(dtype) / dtype.type(int(how["divisor"]))
    unsigned = np.dtype(f"u{dtype.itemsize}")
    if kind == "table":
        table = _decode_integers(data[:start], how["table"], int(how["table"]["distinct"]))
        return table[numbers].astype(unsigned).view(dtype)
    return numbers.astype(unsigned).view(dtype)


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(f"i{values.dtype.itemsize}").astype(np.int64)


def as_whole(values: np.ndarray) -> np.ndarray | None:
    """Floating-point values as integers where that keeps every bit, else None."""
    if not np.isfinite(values).all() or (np.abs(values) > 2.0**24).any():
        return None
    whole = values.astype(np.int64)
    return whole if np.array_equal(_bits(whole.astype(values.dtype)), _bits(values)) else None


def _as_half(values: np.ndarray, divisor: int) -> np.ndarray | None:
    """float16 bit patterns h with values = h / divisor, where there are such."""

    def half(part: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return (part * values.dtype.type(divisor)).astype(np.float16)

    def same(part: np.ndarray) -> bool:
        back = half(part).astype(values.dtype) / values.dtype.type(divisor)
        return np.array_equal(_bits(back), _bits(part))

    if values.dtype == np.float16 and divisor == 1:
        return values.view(np.uint16).astype(np.int64)
    if not same(values[:1000]) or not same(values):
        return None
    return half(values).view(np.uint16).astype(np.int64)


def _encode_integers(values: np.ndarray) -> Coded:
    """int64 values: a constant, bits, or byte planes of the values or of their differences."""
    if len(values) == 0:
        return b"", {"as": "constant", "value": 0}
    low, high = int(values.min()), int(values.max())
    if low == high:
        return b"", {"as": "constant", "value": low}
    # Unsigned arithmetic wraps around, so that the full range of int64 is no special case.
    above = values.view(np.uint64) - np.uint64(low % 2**64)
    width = _width(high - low)
    if high - low == 1:
        data, packing = _compress(np.packbits(above.astype(np.uint8)).tobytes())
        return data, {"as": "bits", "low": low, **packing}
    step = np.diff(values, prepend=values[:1])
    zigzag = ((step << 1) ^ (step >> 63)).view(np.uint64)
    candidates = {"planes": (above, width, low), "steps": (zigzag, _width(int(zigzag.max())), int(values[0]))}
    sizes = {
        kind: len(zlib.compress(_planes(numbers[: SAMPLE // 4], wide), 6))
        for kind, (numbers, wide, _) in candidates.items()
    }
    kind = min(sizes, key=lambda name: sizes[name])
    numbers, width, start = candidates[kind]
    data, packing = _compress(_planes(numbers, width))
    return data, {"as": kind, "low": start, "width": width, **packing}


def _decode_integers(data: bytes, how: dict[str, Any], count: int) -> np.ndarray:
    kind = how["as"]
    if kind == "constant":
        return np.full(count, int(how["value"]), dtype=np.int64)
    low = int(how["low"])
    if kind == "bits":
        raw = np.frombuffer(_decompress(data, how, (count + 7) // 8), dtype=np.uint8)
        return np.unpackbits(raw, count=count).astype(np.int64) + low
    width = int(how["width"])
    raw = np.frombuffer(_decompress(data, how, width * count), dtype=np.uint8)
    values = np.ascontiguousarray(raw.reshape(width, count).T).reshape(-1).view(f"u{width}").astype(np.uint64)
    if kind == "planes":
        return (values + np.uint64(low % 2**64)).view(np.int64)
    steps = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return np.cumsum(steps) + low


def _width(largest: int) -> int:
    return next(width for width in (1, 2, 4, 8) if largest < 2 ** (8 * width))


def _planes(values: np.ndarray, width: int) -> bytes:
    """All lowest bytes, then all second bytes, ...: each plane has statistics of its own."""
    small = values.astype(f"<u{width}")
    return np.ascontiguousarray(small.view(np.uint8).reshape(-1, width).T).tobytes()


def _compress(raw: bytes) -> Coded:
    def lzma_of(part: bytes, literal_context: int) -> bytes:
        filters = [
            {
                "id": lzma.FILTER_LZMA2,
                "preset": 9 | lzma.PRESET_EXTREME,
                "lc": literal_context,
                "pb": 0,
                "dict_size": min(max(len(part), 1 << 12), 1 << 24),
            }
        ]
        return lzma.compress(part, format=lzma.FORMAT_XZ, check=lzma.CHECK_NONE, filters=filters)

    middle = len(raw) // 2
    sample = raw if len(raw) <= SAMPLE else raw[: SAMPLE // 2] + raw[middle : middle + SAMPLE // 2]
    best = min((0, 3, 4), key=lambda context: len(lzma_of(sample, context)))
    packed = lzma_of(raw, best)
    return (packed, {"packing": "lzma"}) if len(packed) < len(raw) else (raw, {"packing": "none"})


def _decompress(data: bytes, how: dict[str, Any], size: int) -> bytes:
    """At most ``size`` bytes are ever produced, whatever the file says."""
    if how["packing"] == "none":
        raw = data
    else:
        try:
            raw = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(data, max_length=size + 1)
        except lzma.LZMAError as error:
            raise ValueError(f"a column does not unpack ({error})") from error
    if len(raw) != size:
        raise ValueError(f"a column has {len(raw)} bytes instead of {size}")
    return raw
