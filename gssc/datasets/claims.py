"""What a file of graphs claims to hold, checked against its size before anything is made of it.

A few bytes can stand for any number of nodes, and for tensors that repeat one number; so no more is believed than so
many times what is there.
"""

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.datasets.flat import Graphs

MOST_BYTES, MOST_TIMES = 1 << 26, 100  # of tensors: so many, or so many times those of the file
MOST_NODES, NODES_PER_NUMBER = 10_000, 10
MOST_GRAPHS, BYTES_PER_GRAPH = 1000, 50


def check_archive(argument: str, expected: str, path: Path, *, packed: bool = False) -> None:
    """Fail where an archive unpacks to more than it may; ``packed`` says that it may be compressed."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":  # another kind of file, of which its reader has something to say
            return
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        fail(argument, expected, f"{path}, which cannot be read ({error})")
    if size > max(MOST_BYTES if packed else 0, (MOST_TIMES if packed else 1) * path.stat().st_size):
        fail(argument, expected, f"{path}, which claims to hold {size:,} bytes")


def check_claims(saved: Graphs, path: Path) -> None:
    """Fail where graphs are far larger than the file that they come from."""
    graphs: Iterable[Any] = saved if isinstance(saved, list) else [getattr(saved, "_data", saved)]
    for name, cuts in (getattr(saved, "slices", None) or {}).items():
        rows = torch.as_tensor(cuts)
        if rows.dim() != 1 or not rows.numel() or bool(rows[0] != 0) or bool((rows.diff() < 0).any()):
            fail("data", f"slices of {name} that begin with 0 and rise", f"others in {path}")
    most_graphs = MOST_GRAPHS + path.stat().st_size // BYTES_PER_GRAPH
    if isinstance(saved, list) and len(saved) > most_graphs:
        fail("data", f"at most {most_graphs:,} graphs in a file of this size", f"{path}, which claims {len(saved):,}")
    size = numbers = nodes = 0
    for graph in graphs:
        values = graph.to_dict() if isinstance(graph._store, Mapping) else {}
        tensors = [v for v in values.values() if isinstance(v, Tensor) and v.layout == torch.strided]
        size += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        numbers += sum(map(Tensor.numel, tensors))
        ends, told = values.get("edge_index"), values.get("num_nodes")
        most = [int(ends.max()) + 1] if isinstance(ends, Tensor) and ends.numel() and not ends.is_complex() else []
        most += [told] if isinstance(told, int) else []
        if isinstance(told, list | Tensor):
            most.append(int(torch.as_tensor(told).clamp(min=0).double().sum()))
        nodes += max(most, default=0)
        if size > max(MOST_BYTES, MOST_TIMES * path.stat().st_size):
            fail("data", "graphs no larger than their file suggests", f"{path}, which claims more than {size:,} bytes")
    if nodes > MOST_NODES + NODES_PER_NUMBER * numbers:
        expected = f"at most {NODES_PER_NUMBER} nodes for each number in the file"
        fail("data", expected, f"{path}, which claims {nodes:,} for {numbers:,}")
