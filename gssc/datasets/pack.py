"""A dataset as one small file: graphs, features, targets and split, from which training starts on another machine.

A pack is a safetensors file of byte tensors, one per column (see `columns`), with JSON that says what they are. It is
read with PyTorch, NumPy and safetensors alone, runs no code of its own, and every byte of it, and every array read from
it, is covered by a checksum. Edges come back in canonical order: by graph, destination, source, the order in which
training sorts them in any case, so that training from a pack and from the original files is the same.

Spectra are not part of it: computing them anew is faster than moving them.
"""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gssc.checks import fail
from gssc.datasets import superpixels
from gssc.datasets.adjacency import decode_edges, encode_edges, halves
from gssc.datasets.columns import Coded, decode_column, encode_column
from gssc.datasets.flat import FlatGraphs, GraphDataset, concatenate, from_about
from gssc.datasets.rows import decode_rows, encode_rows
from gssc.files import load_tensors, save_tensors

FORMAT, VERSION = "gssc dataset", 1
FIELDS = ("ptr", "edge_ptr", "edge_index", "x", "edge_attr", "y", "weight")


def write_pack(dataset: GraphDataset, path: str | Path, *, generator: dict[str, Any] | None = None) -> int:
    """Write a dataset; returns the size of the file in bytes.

    Args:
        dataset: What to write.
        path: The file; it appears complete or not at all.
        generator: The arguments of `open_dataset` that make this dataset from a seed: then only they are written.
    """
    shared = _one_graph_for_all(dataset.splits)
    parts = list(dataset.splits.values())
    flat = (parts[0] if shared else concatenate([replace(part, mask=None) for part in parts])).sorted_by_destination()
    masks = {name: part.mask for name, part in dataset.splits.items() if part.mask is not None}
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "dataset": dataset.about(),
        "splits": [[name, part.num_graphs] for name, part in dataset.splits.items()],
        "shared": shared,
        "checksums": _checksums(flat, masks),
    }
    columns: dict[str, Coded] = {}
    if generator is None:
        about["arrays"] = _encode(flat, columns)
        columns |= {f"mask/{name}": encode_column(mask.numpy()) for name, mask in masks.items()}
        about["columns"] = {name: how for name, (_, how) in columns.items()}
        if _checksums(*_decode(about, columns)) != about["checksums"]:
            raise RuntimeError(f"{dataset.name}: the pack does not give back what it was made from")
    else:
        about["generator"] = generator
    tensors = {
        name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, (data, _) in columns.items() if data
    }
    save_tensors(Path(path), tensors, about)
    return Path(path).stat().st_size


def load_pack(path: str | Path) -> GraphDataset:
    """Read a dataset that `write_pack` wrote.

    Raises:
        ValueError: no such file, or truncated, damaged or foreign; one line.
    """
    return read_pack(path)[0]


def read_pack(path: str | Path) -> tuple[GraphDataset, dict[str, Any] | None]:
    """The dataset of a pack, and ``generator`` as it was given to `write_pack`.

    Raises:
        ValueError: no such file, or truncated, damaged or foreign; one line.
    """
    tensors, about = load_tensors(Path(path))
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        fail("pack", "a file written by `gssc pack`", f"{path}, another kind of file")
    if about.get("version") != VERSION:
        fail("pack", f"a file of version {VERSION}", f"{path} of version {about.get('version')}")
    no_masks: dict[str, Tensor] = {}
    try:
        dataset = from_about(about["dataset"])
        if "generator" in about:
            made = _generate(about["generator"], about["checksums"])
            flat, masks = concatenate(list(made.splits.values())).sorted_by_destination(), no_masks
        else:
            bytes_of = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
            columns = {name: (bytes_of.get(name, b""), how) for name, how in about["columns"].items()}
            flat, masks = _decode(about, columns)
        if _checksums(flat, masks) != about["checksums"]:
            raise ValueError("other arrays than were written")
        if not about["splits"] or (not about["shared"] and sum(n for _, n in about["splits"]) != flat.num_graphs):
            raise ValueError("splits that do not fit the graphs")
        splits, start = {}, 0
        for name, count in about["splits"]:
            part = flat if about["shared"] else flat.part(start, start + count, dataset.task.level)
            splits[name] = replace(part, mask=masks.get(name))
            start += count
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        fail("pack", "a file written by `gssc pack`", f"{path}: {reason}")
    return replace(dataset, splits=splits), about.get("generator")


def _generate(arguments: dict[str, Any], checksums: dict[str, str | None]) -> GraphDataset:
    from gssc.datasets.open import open_dataset

    # Floating point as it was when the pack was written, whatever the default is now.
    double = any(text is not None and text.startswith("torch.float64") for text in checksums.values())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    try:
        # No folder: nothing is read where everything is generated.
        return open_dataset(str(arguments["name"]), Path(), int(arguments["seed"]), generate=True)
    finally:
        torch.set_default_dtype(before)


def _one_graph_for_all(splits: dict[str, FlatGraphs]) -> bool:
    """Whether the parts are masks of the same graphs, held once."""

    def places(flat: FlatGraphs) -> list[int | None]:
        return [
            None if t is None else t.data_ptr() for t in (flat.ptr, flat.edge_index, flat.x, flat.edge_attr, flat.y)
        ]

    first, *others = splits.values()
    return first.mask is not None and all(places(part) == places(first) for part in others)


def _checksums(flat: FlatGraphs, masks: dict[str, Tensor]) -> dict[str, str | None]:
    """Type, shape and CRC of every array, as far as there are any."""
    arrays = {name: getattr(flat, name) for name in FIELDS} | {f"mask/{name}": mask for name, mask in masks.items()}
    return {
        name: None if t is None else f"{t.dtype} {list(t.shape)} {zlib.crc32(t.contiguous().numpy().data):08x}"
        for name, t in arrays.items()
    }


def _encode(flat: FlatGraphs, columns: dict[str, Coded]) -> dict[str, Any]:
    """Fill ``columns`` with all but the masks; returns how the arrays are made up of them."""
    ptr, edge_ptr, edge_index = flat.ptr.numpy(), flat.edge_ptr.numpy(), flat.edge_index.numpy()
    x, edge_attr, y, weight = (None if t is None else t.numpy() for t in (flat.x, flat.edge_attr, flat.y, flat.weight))
    columns["nodes"] = encode_column(np.diff(ptr))
    arrays: dict[str, Any] = {"x": encode_rows("x", x, columns), "y": encode_rows("y", y, columns)}
    if x is not None and edge_attr is not None and weight is None and _encode_superpixels(flat, columns):
        return {**arrays, "edges": "superpixels", "edge_attr": str(edge_attr.dtype), "weight": None}
    attributes = [a for a in (edge_attr, weight) if a is not None]
    half = halves(ptr, edge_ptr, edge_index, attributes)
    sizes = np.diff(ptr)
    # A bit for every pair of nodes costs less than a byte for every edge.
    dense = half is not None and not attributes and int((sizes * (sizes - 1) // 2).sum()) < 8 * int(half.sum())
    coded, arrays["edges"] = encode_edges(ptr, edge_ptr, edge_index, half, dense)
    columns |= {f"edges/{name}": column for name, column in coded.items()}
    for name, values in (("edge_attr", edge_attr), ("weight", weight)):
        arrays[name] = encode_rows(name, values if values is None or half is None else values[half], columns)
    return arrays


def _encode_superpixels(flat: FlatGraphs, columns: dict[str, Coded]) -> bool:
    """Code the edges as those that follow from positions, the last two columns of ``x``, if they do."""
    k = superpixels.K
    x, edge_attr = flat.x, flat.edge_attr
    if x is None or edge_attr is None or x.shape[1] < 3 or x.dtype != torch.float32 or edge_attr.shape[1] != 1:
        return False
    starts = flat.ptr[:-1].repeat_interleave(flat.edge_ptr.diff())
    leaving = torch.bincount(flat.edge_index[0] + starts, minlength=flat.num_nodes)
    if edge_attr.dtype != torch.float32 or int(flat.ptr.diff().min()) <= k or bool((leaving != k).any()):
        return False
    ptr, pos, actual = flat.ptr.numpy(), x[:, -2:].contiguous().numpy(), edge_attr[:, 0].numpy()
    found = superpixels.exceptions(ptr, pos, flat.edge_index.numpy())
    if found is None:
        return False
    edge_index, weight = superpixels.rebuild(ptr, pos, *found)
    if not np.array_equal(edge_index, flat.edge_index.numpy()):
        return False
    odd = superpixels.unsafe_weights(weight, actual)
    if len(odd) > 0.2 * len(actual):
        return False
    named = {"nodes": found[0], "neighbours": found[1].reshape(-1), "weights": odd, "values": actual[odd]}
    columns |= {f"except/{name}": encode_column(values) for name, values in named.items()}
    return True


def _decode(about: dict[str, Any], columns: dict[str, Coded]) -> tuple[FlatGraphs, dict[str, Tensor]]:
    """All graphs, and the masks of the splits that have any."""
    arrays = about["arrays"]
    ptr = np.concatenate([[0], np.cumsum(decode_column(*columns["nodes"]))])
    x, y = (decode_rows(name, arrays[name], columns) for name in ("x", "y"))
    edge_attr: np.ndarray | None
    weight: np.ndarray | None = None
    if arrays["edges"] == "superpixels":
        nodes, neighbours, odd, values = (
            decode_column(*columns[f"except/{name}"]) for name in ("nodes", "neighbours", "weights", "values")
        )
        pos = np.ascontiguousarray(x[:, -2:])  # type: ignore[index]
        edge_index, similarity = superpixels.rebuild(ptr, pos, nodes, neighbours.reshape(-1, superpixels.K))
        edge_attr = similarity.astype(np.float32)
        edge_attr[odd] = values
        edge_ptr, edge_attr = ptr * superpixels.K, edge_attr[:, None]
    else:
        coded = {name.removeprefix("edges/"): column for name, column in columns.items() if name.startswith("edges/")}
        edge_ptr, edge_index, behind = decode_edges(ptr, coded, arrays["edges"])
        edge_attr, weight = (decode_rows(name, arrays[name], columns) for name in ("edge_attr", "weight"))
        if behind is not None:
            edge_attr, weight = (None if values is None else values[behind] for values in (edge_attr, weight))
    tensors = [None if a is None else torch.from_numpy(a) for a in (ptr, edge_ptr, edge_index, x, edge_attr, y, weight)]
    masks = {
        name.removeprefix("mask/"): torch.from_numpy(decode_column(*column))
        for name, column in columns.items()
        if name.startswith("mask/")
    }
    return FlatGraphs(*tensors), masks  # type: ignore[arg-type]
