"""A dataset as one small file: graphs, features, targets and split, from which training starts on another machine.

A pack is a safetensors file of byte tensors, one per column of numbers, with JSON that says what they are. Reading it
runs no code of its own and takes no more memory than the arrays it announces, which are limited; every byte of it, and
every array read from it, is covered by a checksum. Edges come back in canonical order (by graph, destination, source),
in which training sorts them in any case: training from a pack and from the original files is the same. Spectra are not
part of it: computing them anew is faster than moving them.

Edges are stored as the numbers of the pairs of nodes that they join, each as the difference from the one before; every
pair once where all go both ways with equal features; not at all where positions tell them (`superpixels`).
"""

import math
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gssc.checks import fail
from gssc.datasets import superpixels
from gssc.datasets.columns import Columns, decode_array, encode_array, join_rows, split_rows
from gssc.datasets.flat import FlatGraphs, GraphDataset, concatenate, from_about
from gssc.files import load_tensors, save_tensors

FORMAT, VERSION = "gssc dataset", 3
ARRAYS = ("ptr", "edge_ptr", "edge_index", "x", "edge_attr", "y", "weight")
EDGE_FEATURES = ("edge_attr", "weight")
# How edges may be stored, the best first.
WAYS = ("superpixels", "symmetric", "directed")
# Arrays of a pack: at most 1 GiB, or a thousand times the file.
MOST_BYTES, MOST_TIMES = 1 << 30, 1000


def write_pack(dataset: GraphDataset, path: str | Path, *, generator: dict[str, Any] | None = None) -> int:
    """Write a dataset; returns the size of the file in bytes.

    Args:
        dataset: What to write.
        path: The file; it appears complete or not at all.
        generator: The arguments of `open_dataset` that make this dataset from a seed: then only they are written.
    """
    parts = list(dataset.splits.values())
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
        about["columns"] = {}
        for name, values in columns.items():
            data, about["columns"][name] = encode_array(values)
            if data:
                tensors[name] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
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
        arrays = _generate(about) if "generator" in about else _read(about, tensors)
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
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        fail("pack", "a file written by `gssc pack`", f"{path}: {reason}")
    return replace(dataset, splits=splits), about.get("generator")


def _read(about: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Columns:
    """The arrays in a file, whose sizes are looked at before any memory is taken."""
    most = max(MOST_BYTES, MOST_TIMES * sum(tensor.numel() for tensor in tensors.values()))
    shapes = [[int(size) for size in shape] for _, shape, _ in about["arrays"].values()]
    if sum(8 * math.prod(shape) for shape in shapes) > most or min(map(min, shapes)) < 0:
        raise ValueError(f"arrays of {shapes}, more than {most:,} bytes")
    longest = max(map(math.prod, shapes))
    data = {name: tensors[name].numpy().tobytes() if name in tensors else b"" for name in about["columns"]}
    columns = {name: decode_array(data[name], how, longest) for name, how in about["columns"].items()}
    return _from_columns(about, columns)


def _generate(about: dict[str, Any]) -> Columns:
    """The arrays of the dataset that a seed makes."""
    from gssc.datasets.open import open_dataset

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


def _to_columns(arrays: Columns, edges: str) -> Columns | None:
    """All arrays, split and with edges stored in this way; None where they cannot be."""
    rest = dict(arrays)
    ptr, edge_ptr, edge_index = (rest.pop(name) for name in ("ptr", "edge_ptr", "edge_index"))
    sizes = np.diff(ptr)
    columns: Columns = {"nodes": sizes}
    if edges == "superpixels":
        if "x" not in rest or "edge_attr" not in rest:
            return None
        odd_edges = superpixels.encode_edges(ptr, edge_ptr, edge_index, rest["x"], rest.pop("edge_attr"))
        if odd_edges is None:
            return None
        pixels = superpixels.encode_nodes(ptr, rest["x"])
        columns |= odd_edges | (pixels or {})
        if pixels is not None:
            del rest["x"]
    else:
        graph, (source, destination) = np.repeat(np.arange(len(sizes)), np.diff(edge_ptr)), edge_index
        row = destination * sizes[graph]
        if edges == "symmetric":
            row = destination * (destination - 1) // 2
            stored = source < destination
            source, row, graph = source[stored], row[stored], graph[stored]
            rest |= {name: rest[name][stored] for name in EDGE_FEATURES if name in rest}
        columns["gap"] = np.diff(_pairs_before(sizes, edges)[graph] + row + source, prepend=0)
    for name, values in rest.items():
        columns |= split_rows(name, values)
    return columns


def _from_columns(about: dict[str, Any], columns: Columns) -> Columns:
    """The arrays that `_to_columns` was given."""
    sizes, edges = columns["nodes"], about["edges"]
    shapes = {name: shape for name, (_, shape, _) in about["arrays"].items()}
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    arrays: Columns = {"ptr": ptr}
    order: Any = slice(None)
    if edges == "superpixels":
        x = superpixels.decode_nodes(ptr, columns) if "pixels" in columns else join_rows("x", columns, shapes["x"])
        edge_index, edge_attr = superpixels.decode_edges(ptr, x, columns)
        arrays |= {"edge_ptr": superpixels.K * ptr, "edge_index": edge_index, "x": x, "edge_attr": edge_attr}
    else:
        before, pair = _pairs_before(sizes, edges), np.cumsum(columns["gap"])
        if pair.size and (pair.min() < 0 or pair.max() >= before[-1]):
            raise ValueError("edges that do not fit the graphs")
        graph = np.searchsorted(before, pair, side="right") - 1
        pair -= before[graph]
        if edges == "symmetric":
            destination = ((1 + np.sqrt(1 + 8 * pair)) // 2).astype(np.int64)
            source = pair - destination * (destination - 1) // 2
            ends, graph = np.stack([np.r_[source, destination], np.r_[destination, source]]), np.tile(graph, 2)
            order = np.argsort((ends[1] + ptr[graph]) * int(ptr[-1]) + ends[0], kind="stable")
            edge_index, order = ends[:, order], order % max(len(pair), 1)
        else:
            edge_index = np.stack(np.divmod(pair, sizes[graph])[::-1])
        counts = np.bincount(graph, minlength=len(sizes))
        arrays |= {"edge_ptr": np.concatenate([[0], np.cumsum(counts)]), "edge_index": edge_index}
    for name in shapes.keys() - arrays.keys():
        values = join_rows(name, columns, shapes[name])
        arrays[name] = values[order] if name in EDGE_FEATURES else values
    return {name: np.ascontiguousarray(arrays[name]) for name in shapes}


def _pairs_before(sizes: np.ndarray, edges: str) -> np.ndarray:
    """Pairs of nodes that may be joined in all graphs before each, and in all."""
    return np.concatenate([[0], np.cumsum(sizes * (sizes - 1) // 2 if edges == "symmetric" else sizes * sizes)])
