"""A dataset as one small file: graphs, features, targets and split, from which training starts on another machine.

A pack is a safetensors file of bytes, columns of numbers in LZMA, with JSON that says what they are. Reading it runs no
code of its own and unpacks no more than a limit; every byte of it, and every array read from it, is covered by a
checksum. Edges come back in canonical order (by graph, destination, source), in which training sorts them in any case:
training from a pack and from the original files is the same. Spectra are not part of it: computing them anew is faster
than moving them.

Edges are stored as the numbers of the pairs of nodes that they join, each as the difference from the one before; every
pair once where all go both ways with equal features; not at all where positions tell them (`superpixels`).
"""

import lzma
import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gssc.checks import fail, first_line
from gssc.datasets import superpixels
from gssc.datasets.flat import FlatGraphs, GraphDataset, concatenate, from_about
from gssc.datasets.open import open_dataset
from gssc.datasets.superpixels import Columns
from gssc.files import load_tensors, save_tensors
from gssc.readers import NONSENSE, unpacked

FORMAT, VERSION = "gssc dataset", 4
ARRAYS = ("ptr", "edge_ptr", "edge_index", "x", "edge_attr", "y", "weight")
EDGE_FEATURES = ("edge_attr", "weight")
# How edges may be stored, the best first.
WAYS = ("superpixels", "symmetric", "directed")
LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 2, "lp": 2, "pb": 0}]
# What a pack unpacks to: so many bytes, or so many times its own.
MOST_BYTES, MOST_TIMES = 1 << 26, 1000
MOST_PAIRS = 10**7  # of nodes of superpixels that are looked at, or so many times the bytes
SHORT_TYPES = tuple(map(np.dtype, ("uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32")))


def write_pack(dataset: GraphDataset, path: str | Path, *, generator: dict[str, Any] | None = None) -> int:
    """Write a dataset; returns the size of the file in bytes.

    Args:
        dataset: What to write.
        path: The file; it appears complete or not at all.
        generator: The arguments of `open_dataset` that make this dataset from a seed: then only they are written.
    """
    parts = list(dataset.splits.values())
    if dataset.task.level == "edge":
        fail("dataset", "one of graphs or of nodes (pairs of nodes are not packed)", f"{dataset.name}, of pairs")
    # Parts that are masks of the same graphs hold these once.
    shared = parts[0].mask is not None and all(
        getattr(part, name) is getattr(parts[0], name) for part in parts for name in ARRAYS
    )
    arrays = _arrays(parts[:1] if shared else parts)
    arrays |= {f"mask/{name}": part.mask.numpy() for name, part in dataset.splits.items() if part.mask is not None}
    about: dict[str, Any] = {"format": FORMAT, "version": VERSION, "dataset": dataset.about(), "shared": shared}
    about |= {"splits": [[name, len(part)] for name, part in dataset.splits.items()], "arrays": _described(arrays)}
    tensors = {}
    if generator is None:
        for about["edges"] in WAYS:
            columns = _to_columns(arrays, about["edges"])
            if columns is not None and _described(_from_columns(about, columns)) == about["arrays"]:
                break
        else:
            raise RuntimeError(f"{dataset.name}: the pack does not give back what it was made from")
        # Column after column.
        stored = save({name: _shortest(np.ascontiguousarray(values.T)) for name, values in columns.items()})
        packed = bytearray(lzma.compress(stored, lzma.FORMAT_RAW, filters=LZMA))
        tensors["columns"] = torch.frombuffer(packed, dtype=torch.uint8)
    else:
        about["generator"] = generator
    save_tensors(Path(path), tensors, about)
    return Path(path).stat().st_size


def load_pack(path: str | Path) -> GraphDataset:
    """Read a dataset that `write_pack` wrote; any other file is a ValueError of one line."""
    return read_pack(path)[0]


def read_pack(path: str | Path) -> tuple[GraphDataset, dict[str, Any] | None]:
    """The dataset of a pack, and ``generator`` as it was given to `write_pack`; errors as of `load_pack`."""
    tensors, about = load_tensors(Path(path))
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        fail("pack", "a file written by `gssc pack`", f"{path}, another kind of file")
    if about.get("version") != VERSION:
        fail("pack", f"a file of version {VERSION} (pack the data anew)", f"{path} of version {about.get('version')}")
    try:
        dataset = from_about(about["dataset"])
        arrays = _generate(about) if "generator" in about else _read(about, tensors["columns"].numpy().tobytes())
        if _described(arrays) != about["arrays"]:
            raise ValueError("other arrays than were written")
        flat = FlatGraphs(*(torch.from_numpy(arrays[name]) if name in arrays else None for name in ARRAYS))  # type: ignore[arg-type]
        if not about["splits"] or (not about["shared"] and sum(n for _, n in about["splits"]) != len(flat)):
            raise ValueError("splits that do not fit the graphs")
        splits, start = {}, 0
        for name, count in about["splits"]:
            part = flat if about["shared"] else flat.part(start, start + count, dataset.task.level)
            mask = arrays.get(f"mask/{name}")
            splits[name] = replace(part, mask=None if mask is None else torch.from_numpy(mask))
            start += count
    except (*NONSENSE, MemoryError, SafetensorError, lzma.LZMAError) as error:
        fail("pack", "a file written by `gssc pack`", f"{path}: {first_line(error)}")
    return replace(dataset, splits=splits), about.get("generator")


def _read(about: dict[str, Any], data: bytes) -> Columns:
    """The arrays in a file, of which no more is unpacked than the limit, whatever is in it."""
    most = max(MOST_BYTES, MOST_TIMES * len(data))
    shapes = [[int(size) for size in shape] for _, shape, _ in about["arrays"].values()]
    if min((min(shape, default=0) for shape in shapes), default=0) < 0:
        raise ValueError("arrays of a negative size")
    if sum(8 * math.prod(max(size, 1) for size in shape) for shape in shapes) > most:
        raise ValueError(f"arrays of more than {most:,} bytes")
    stored = unpacked(data, lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA), most)
    columns = {name: values.T for name, values in load(stored).items()}
    if 8 * sum(values.size for values in columns.values()) > most:  # they are widened before they are compared
        raise ValueError(f"columns of more than {most:,} bytes")
    sizes = columns["nodes"].astype(np.float64)
    if about["edges"] == "superpixels" and np.square(sizes).sum() > max(MOST_PAIRS, MOST_TIMES * len(data)):
        raise ValueError("graphs of more pairs of nodes than a file of this size holds")
    return _from_columns(about, columns)


def _generate(about: dict[str, Any]) -> Columns:
    """The arrays of the dataset that a seed makes."""
    # Floating point as it was when the pack was written, whatever the default is now.
    double = any(dtype == "float64" for dtype, _, _ in about["arrays"].values())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    try:
        # No folder: nothing is read where everything is generated.
        made = open_dataset(str(about["generator"]["name"]), Path(), int(about["generator"]["seed"]), generate=True)
        return _arrays(list(made.splits.values()))
    finally:
        torch.set_default_dtype(before)


def _arrays(parts: list[FlatGraphs]) -> Columns:
    """All graphs end to end in canonical order, without masks."""
    flat = concatenate([replace(part, mask=None) for part in parts]).sorted_by_destination()
    return {name: values.numpy() for name in ARRAYS if (values := getattr(flat, name)) is not None}


def _described(arrays: Columns) -> dict[str, list[Any]]:
    """Type, shape and CRC of every array."""
    return {
        name: [str(values.dtype), list(values.shape), zlib.crc32(np.ascontiguousarray(values).data)]
        for name, values in arrays.items()
    }


def _shortest(values: np.ndarray) -> np.ndarray:
    """The same numbers in the first type of few bytes from which they come back bit for bit."""
    with np.errstate(invalid="ignore", over="ignore"):
        for dtype in SHORT_TYPES:
            short = values.astype(dtype)
            if dtype.itemsize < values.itemsize and short.astype(values.dtype).tobytes() == values.tobytes():
                return short
    return values


def _to_columns(arrays: Columns, edges: str) -> Columns | None:
    """All arrays, with edges stored in this way; None where they cannot be."""
    rest = dict(arrays)
    ptr, edge_ptr, edge_index = (rest.pop(name) for name in ("ptr", "edge_ptr", "edge_index"))
    sizes = np.diff(ptr)
    if edges == "superpixels":
        columns = superpixels.encode(ptr, edge_ptr, edge_index, rest.pop("x", None), rest.pop("edge_attr", None))
        return None if columns is None else {"nodes": sizes, **columns, **rest}
    graph, (source, destination) = np.repeat(np.arange(len(sizes)), np.diff(edge_ptr)), edge_index
    row = destination * sizes[graph]
    if edges == "symmetric":
        row = destination * (destination - 1) // 2
        stored = source < destination
        source, row, graph = source[stored], row[stored], graph[stored]
        rest |= {name: rest[name][stored] for name in EDGE_FEATURES if name in rest}
    pair = _pairs_before(sizes, edges)[graph] + row + source
    return {"nodes": sizes, "gap": np.diff(pair, prepend=0), **rest}


def _from_columns(about: dict[str, Any], columns: Columns) -> Columns:
    """The arrays that `_to_columns` was given."""
    sizes = columns["nodes"].astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    arrays = {**columns, "ptr": ptr}
    if about["edges"] == "superpixels":
        arrays |= superpixels.decode(ptr, columns)
    else:
        before, pair = _pairs_before(sizes, about["edges"]), np.cumsum(columns["gap"], dtype=np.int64)
        if pair.size and (pair.min() < 0 or pair.max() >= before[-1]):
            raise ValueError("edges that do not fit the graphs")
        graph = np.searchsorted(before, pair, side="right") - 1
        pair -= before[graph]
        if about["edges"] == "symmetric":
            destination = ((1 + np.sqrt(1 + 8 * pair)) // 2).astype(np.int64)
            source = pair - destination * (destination - 1) // 2
            ends, graph = np.stack([np.r_[source, destination], np.r_[destination, source]]), np.tile(graph, 2)
            order = np.argsort((ends[1] + ptr[graph]) * ptr[-1] + ends[0], kind="stable")
            edge_index = ends[:, order]
            arrays |= {name: columns[name][order % len(pair)] for name in EDGE_FEATURES if name in columns}
        else:
            edge_index = np.stack(np.divmod(pair, sizes[graph])[::-1])
        counts = np.bincount(graph, minlength=len(sizes))
        arrays |= {"edge_ptr": np.concatenate([[0], np.cumsum(counts)]), "edge_index": edge_index}
    return {name: np.ascontiguousarray(arrays[name], dtype) for name, (dtype, _, _) in about["arrays"].items()}


def _pairs_before(sizes: np.ndarray, edges: str) -> np.ndarray:
    """Pairs of nodes that may be joined in all graphs before each, and in all."""
    return np.concatenate([[0], np.cumsum(sizes * (sizes - 1) // 2 if edges == "symmetric" else sizes * sizes)])
