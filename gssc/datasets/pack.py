"""A dataset as one small file: graphs, features, targets and split, from which training starts on another machine.

A pack is a safetensors file of byte tensors, one per column of numbers, with JSON that says what they are. Reading it
runs no code of its own and takes no more memory than the arrays it announces, which are limited; every byte of it, and
every array read from it, is covered by a checksum. Edges come back in canonical order (by graph, destination, source),
in which training sorts them in any case: training from a pack and from the original files is the same. Spectra are not
part of it: computing them anew is faster than moving them.

An array [rows, D] is stored as the numbers of its rows in a table of the distinct ones where these are few, else column
by column. Edges are stored as the number of them into every node, and how far each source is from the one before;
every pair once where all go both ways with equal features; not at all where positions tell them (`superpixels`).
"""

import lzma
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gssc.checks import fail
from gssc.datasets import superpixels
from gssc.datasets.flat import FlatGraphs, GraphDataset, concatenate, from_about
from gssc.files import load_tensors, save_tensors

FORMAT, VERSION = "gssc dataset", 2
ARRAYS = ("ptr", "edge_ptr", "edge_index", "x", "edge_attr", "y", "weight")
LZMA = [{"id": lzma.FILTER_LZMA2, "preset": 6, "lc": 0, "pb": 0}]
# Arrays of a pack: at most 1 GiB, or a thousand times the file.
MOST_BYTES, MOST_TIMES = 1 << 30, 1000
MOST_DISTINCT = 1 << 16
Columns = dict[str, np.ndarray]


def write_pack(dataset: GraphDataset, path: str | Path, *, generator: dict[str, Any] | None = None) -> int:
    """Write a dataset; returns the size of the file in bytes.

    Args:
        dataset: What to write.
        path: The file; it appears complete or not at all.
        generator: The arguments of `open_dataset` that make this dataset from a seed: then only they are written.
    """
    parts = list(dataset.splits.values())
    shared = _one_graph_for_all(parts)
    flat = (parts[0] if shared else concatenate([replace(part, mask=None) for part in parts])).sorted_by_destination()
    arrays = {name: getattr(flat, name).numpy() for name in ARRAYS if getattr(flat, name) is not None}
    arrays |= {f"mask/{name}": part.mask.numpy() for name, part in dataset.splits.items() if part.mask is not None}
    about: dict[str, Any] = {"format": FORMAT, "version": VERSION, "dataset": dataset.about(), "shared": shared}
    about |= {"splits": [[name, len(part)] for name, part in dataset.splits.items()], "arrays": _described(arrays)}
    coded: dict[str, tuple[bytes, dict[str, Any]]] = {}
    if generator is None:
        about["edges"], columns = _to_columns(arrays)
        coded = {name: encode_column(values) for name, values in columns.items()}
        about["columns"] = {name: how for name, (_, how) in coded.items()}
        if _described(_from_columns(about, columns)) != about["arrays"]:
            raise RuntimeError(f"{dataset.name}: the pack does not give back what it was made from")
    else:
        about["generator"] = generator
    tensors = {name: torch.frombuffer(bytearray(data), dtype=torch.uint8) for name, (data, _) in coded.items() if data}
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
        if "generator" in about:
            made = concatenate(list(_generate(about).splits.values())).sorted_by_destination()
            arrays = {name: getattr(made, name).numpy() for name in ARRAYS if getattr(made, name) is not None}
        else:
            most = max(MOST_BYTES, MOST_TIMES * Path(path).stat().st_size)
            sizes = [np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape, _ in about["arrays"].values()]
            if min(sizes) < 0 or sum(sizes) > most:
                raise ValueError(f"arrays of {sum(sizes):,} bytes, more than {most:,}")
            rows = max(max(shape) for _, shape, _ in about["arrays"].values())
            columns = {
                name: decode_column(tensors[name].numpy().tobytes() if name in tensors else b"", how, rows)
                for name, how in about["columns"].items()
            }
            arrays = _from_columns(about, columns)
        if _described(arrays) != about["arrays"]:
            raise ValueError("other arrays than were written")
        flat = FlatGraphs(**{name: torch.from_numpy(arrays[name]) if name in arrays else None for name in ARRAYS})  # type: ignore[arg-type]
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


def _generate(about: dict[str, Any]) -> GraphDataset:
    from gssc.datasets.open import open_dataset

    # Floating point as it was when the pack was written, whatever the default is now.
    double = any(dtype == "float64" for dtype, _, _ in about["arrays"].values())
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    try:
        # No folder: nothing is read where everything is generated.
        return open_dataset(str(about["generator"]["name"]), Path(), int(about["generator"]["seed"]), generate=True)
    finally:
        torch.set_default_dtype(before)


def _one_graph_for_all(parts: list[FlatGraphs]) -> bool:
    """Whether the parts are masks of the same graphs, held once."""
    places = [[None if (t := getattr(part, name)) is None else t.data_ptr() for name in ARRAYS] for part in parts]
    return parts[0].mask is not None and all(place == places[0] for place in places)


def _described(arrays: Columns) -> dict[str, list[Any]]:
    """Type, shape and CRC of every array."""
    return {
        name: [str(values.dtype), list(values.shape), zlib.crc32(np.ascontiguousarray(values).data)]
        for name, values in arrays.items()
    }


def _to_columns(arrays: Columns) -> tuple[str, Columns]:
    """How edges are stored, and all arrays as one-dimensional ones."""
    ptr, edge_ptr, edge_index = (arrays[name] for name in ("ptr", "edge_ptr", "edge_index"))
    columns: Columns = {"nodes": np.diff(ptr)}
    rest = {name: values for name, values in arrays.items() if name not in ("ptr", "edge_ptr", "edge_index")}
    exceptions = None
    if "x" in rest and "edge_attr" in rest and "weight" not in rest:
        exceptions = superpixels.encode_edges(ptr, edge_index, rest["x"], rest["edge_attr"])
    if exceptions is not None:
        edges = "superpixels"
        columns |= {f"except/{name}": values for name, values in exceptions.items()}
        del rest["edge_attr"]
        pixels = superpixels.encode_nodes(ptr, rest["x"])
        if pixels is not None:
            columns |= {f"pixels/{name}": values for name, values in pixels.items()}
            del rest["x"]
    else:
        first_node = np.repeat(ptr[:-1], np.diff(edge_ptr))
        kept = _one_direction(edge_index + first_node, [rest[name] for name in ("edge_attr", "weight") if name in rest])
        edges = "directed" if kept is None else "symmetric"
        kept = np.ones(edge_index.shape[1], dtype=bool) if kept is None else kept
        source, destination = edge_index[:, kept]
        columns["degree"] = np.bincount((destination + first_node[kept]), minlength=int(ptr[-1]))
        columns["gap"] = np.diff(source, prepend=0)
        # The first source into a node is counted from that node, the others from the source before.
        into = _first_edges(columns["degree"])
        columns["gap"][into] = destination[into] - source[into]
        rest |= {name: rest[name][kept] for name in ("edge_attr", "weight") if name in rest}
    for name, values in rest.items():
        columns |= _table_or_columns(name, values)
    return edges, columns


def _from_columns(about: dict[str, Any], columns: Columns) -> Columns:
    """The arrays that `_to_columns` was given."""
    sizes = columns["nodes"]
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    arrays: Columns = {"ptr": ptr}
    order: Any = slice(None)
    if about["edges"] == "superpixels":
        pixels = {name.partition("/")[2]: v for name, v in columns.items() if name.startswith("pixels/")}
        x = superpixels.decode_nodes(ptr, pixels) if pixels else _from_table_or_columns("x", about, columns)
        exceptions = {name.partition("/")[2]: v for name, v in columns.items() if name.startswith("except/")}
        edge_index, edge_attr = superpixels.decode_edges(ptr, x, exceptions)
        arrays |= {"x": x, "edge_ptr": superpixels.K * ptr, "edge_index": edge_index, "edge_attr": edge_attr}
    else:
        degree, gap = columns["degree"], columns["gap"]
        if len(degree) != ptr[-1] or (sizes < 0).any() or (degree < 0).any() or len(gap) != degree.sum():
            raise ValueError("edges that do not fit the graphs")
        graph = np.repeat(np.repeat(np.arange(len(sizes)), sizes), degree)
        destination = np.repeat(np.arange(int(ptr[-1])), degree) - ptr[graph]
        total, into = np.cumsum(gap), _first_edges(degree)
        source = total - np.repeat(total[into] - destination[into] + gap[into], degree[degree > 0])
        edge_index = np.stack([source, destination])
        if about["edges"] == "symmetric":
            edge_index, graph = np.concatenate([edge_index, edge_index[::-1]], axis=1), np.tile(graph, 2)
            order = np.argsort((edge_index[1] + ptr[graph]) * int(ptr[-1]) + edge_index[0], kind="stable")
            edge_index = edge_index[:, order]
            order %= max(len(gap), 1)
        edge_ptr = np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=len(sizes)))])
        if edge_index.size and (edge_index.min() < 0 or (edge_index >= np.repeat(sizes, np.diff(edge_ptr))).any()):
            raise ValueError("an edge that leads out of its graph")
        arrays |= {"edge_ptr": edge_ptr, "edge_index": edge_index}
    for name in about["arrays"]:
        if name not in arrays:
            values = _from_table_or_columns(name, about, columns)
            arrays[name] = values[order] if name in ("edge_attr", "weight") else values
    return {name: np.ascontiguousarray(arrays[name]) for name in about["arrays"]}


def _first_edges(degree: np.ndarray) -> np.ndarray:
    """Number of the first edge into every node that has any."""
    first: np.ndarray = (np.cumsum(degree) - degree)[degree > 0]
    return first


def _one_direction(ends: np.ndarray, features: list[np.ndarray]) -> np.ndarray | None:
    """Where source < destination, if every edge has one twin in the other direction with equal features; else None."""
    source, destination = ends
    order = np.lexsort([destination, source])
    mirrored = np.array_equal(ends[:, order], ends[::-1]) and not (source == destination).any()
    repeated = (ends[:, 1:] == ends[:, :-1]).all(0).any()
    if not mirrored or repeated or any(values[order].tobytes() != values.tobytes() for values in features):
        return None
    return source < destination


def _table_or_columns(name: str, values: np.ndarray) -> Columns:
    """An array as the numbers of its rows in a table of the distinct ones, most frequent first, or as its columns."""
    rows = np.ascontiguousarray(values.reshape(len(values), -1))
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


def _from_table_or_columns(name: str, about: dict[str, Any], columns: Columns) -> np.ndarray:
    dtype, shape, _ = about["arrays"][name]
    widths = range(int(np.prod(shape[1:])))
    rows = np.stack([columns[f"{name}/{i}"] for i in widths], axis=1) if widths else np.zeros((shape[0], 0), dtype)
    rows = rows[columns[f"{name}/row"]] if f"{name}/row" in columns else rows
    return rows.reshape(-1, *shape[1:])


def encode_column(values: np.ndarray) -> tuple[bytes, dict[str, Any]]:
    """One-dimensional numbers as bytes, and how to read them.

    Integers as what is above the smallest, floating point as its bits; then byte after byte of all numbers, the highest
    first, each sorted by the bytes before it (equal ones have similar next ones), in the shorter of LZMA and Huffman.
    """
    integers = values.view(f"u{values.itemsize}") if values.dtype.kind in "bf" else values
    low = int(integers.min()) if len(integers) else 0
    # Unsigned arithmetic wraps around, so that the full range of int64 is no special case.
    codes = integers.astype(np.int64).view(np.uint64) - np.uint64(low % 2**64)
    largest = int(codes.max(initial=0))
    if largest == 1:
        planes = [np.packbits(codes.astype(np.uint8))]
    else:
        shifts = reversed(range(0, largest.bit_length(), 8))
        planes = [(codes[_stable_order(codes >> np.uint64(s + 8))] >> np.uint64(s)).astype(np.uint8) for s in shifts]
    streams = [_compress(plane.tobytes()) for plane in planes]
    how = {"dtype": str(values.dtype), "count": len(values), "low": low, "bits": largest == 1}
    return b"".join(data for _, data in streams), how | {"streams": [[kind, len(data)] for kind, data in streams]}


def decode_column(data: bytes, how: dict[str, Any], most: int) -> np.ndarray:
    """What `encode_column` was given, if that is at most so many numbers."""
    dtype, count, start = np.dtype(how["dtype"]), int(how["count"]), 0
    if dtype.kind not in "biuf" or not 0 <= count <= most or len(how["streams"]) > 8:
        raise ValueError(f"no column of {count} {dtype}")
    codes = np.zeros(count, dtype=np.uint64)
    for kind, size in how["streams"]:
        raw = _decompress(kind, data[start : start + size], (count + 7) // 8 if how["bits"] else count)
        plane = np.frombuffer(raw, dtype=np.uint8)
        order = _stable_order(codes)
        codes <<= np.uint64(8)
        codes[order] |= np.unpackbits(plane, count=count) if how["bits"] else plane
        start += size
    integers = (codes + np.uint64(int(how["low"]) % 2**64)).view(np.int64)
    return integers.astype(f"u{dtype.itemsize}").view(dtype) if dtype.kind in "bf" else integers.astype(dtype)


def _stable_order(codes: np.ndarray) -> np.ndarray:
    # In the smallest type, since NumPy sorts one and two bytes by counting.
    return np.argsort(codes.astype(np.min_scalar_type(codes.max(initial=0))), kind="stable")


def _compress(raw: bytes) -> tuple[str, bytes]:
    huffman = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    streams = {
        "none": raw,
        "huffman": huffman.compress(raw) + huffman.flush(),
        "lzma": lzma.compress(raw, format=lzma.FORMAT_RAW, filters=LZMA),
    }
    return min(streams.items(), key=lambda stream: len(stream[1]))


def _decompress(kind: str, data: bytes, size: int) -> bytes:
    """Exactly ``size`` bytes, and never more, whatever the file says."""
    try:
        if kind == "lzma":
            data = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=LZMA).decompress(data, max_length=size + 1)
        elif kind == "huffman":
            data = zlib.decompressobj(-15).decompress(data, size + 1)
    except (lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"a column that does not unpack ({error})") from error
    if len(data) != size:
        raise ValueError(f"a column of {len(data)} bytes instead of {size}")
    return data
