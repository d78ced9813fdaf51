"""A graph cut into shards: for every process its nodes, the edges that enter them, and whom it tells what.

Edges are read in chunks, from memory or from a file that is mapped, and set aside in files by process; then one process
after another has its own in memory. Of the whole graph there are a few vectors [N].
"""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gssc.checks import check_shape, fail
from gssc.files import temporary_folder

Tensors = dict[str, Tensor]
CHUNK = 1 << 22  # edges that are looked at together


def cut_graph(
    edge_index: Tensor,
    part: Tensor,
    ranks: int,
    of_nodes: Mapping[str, Tensor],
    of_edges: Mapping[str, Tensor],
    beside: Path | None = None,
) -> Iterator[Tensors]:
    """The tensors of one shard after another, for edges [2, E] and the process of every node, ``part`` [N], int64.

    Of each ``nodes`` and ``halo``, numbers in the graph; ``edge_index`` in local numbers, by target, then source;
    ``send``, ``send_counts``, ``receive_counts``, ``entering`` and ``neighbors`` as `gssc.ops.halo.Halo` has them; and
    its rows of ``of_nodes`` and ``of_edges``. Edges lie ``beside`` this path meanwhile.
    """
    nodes = part.shape[0]
    span = max(nodes, 1)  # a pair of nodes (u, v) is the key u · span + v
    check_shape("part", part, nodes)
    if nodes and not (int(part.min()) >= 0 and int(part.max()) < ranks):
        fail("part", f"numbers of processes in 0..{ranks - 1}", f"{int(part.min())}..{int(part.max())}")
    owned = torch.argsort(part, stable=True).split(torch.bincount(part, minlength=ranks).tolist())
    with temporary_folder(beside or Path(tempfile.gettempdir(), "edges")) as folder:
        entering = torch.zeros(nodes, dtype=torch.int32)
        for number, chunk in enumerate(edge_index.split(CHUNK, dim=1)):
            source, target = chunk.long()
            entering.index_add_(0, target, (source != target).int())
            sender, taker = part[source], part[target]
            crosses, key = sender != taker, target * span + source
            _put(folder, "entering", key, taker, ranks)
            _put(folder, "leaving", (source * span + target)[crosses], sender[crosses], ranks)
            for name, rows in of_edges.items():
                _put(folder, name, rows[number * CHUNK : number * CHUNK + CHUNK], taker, ranks)
        local = torch.empty(nodes, dtype=torch.int32)  # of own nodes and halo, the number in the shard
        for rank, own in enumerate(owned):
            # By target, then source; parallel edges keep their order.
            key, order = _take(folder, "entering", rank, part).sort(stable=True)
            taken = {name: _take(folder, name, rank, like)[order] for name, like in of_edges.items()}
            del order
            target, source = key // span, key % span
            far = torch.unique(source[part[source] != rank])
            halo = far[torch.argsort(part[far], stable=True)]
            both = torch.cat([own, halo])
            local[both] = torch.arange(both.numel(), dtype=torch.int32)
            ends = torch.stack([local[source], local[target]])
            del source, target
            # Nodes that others want: by process, then number, as its halo has them.
            leaving = _take(folder, "leaving", rank, part)
            wanted = torch.unique(part[leaving % span] * span + leaving // span)
            inside = key[ends[0] < own.numel()]
            pairs = torch.cat([key, inside % span * span + inside // span, leaving])
            del key, inside, leaving
            pairs.numpy().sort()
            new = torch.cat([torch.ones(1, dtype=torch.bool), pairs[1:] != pairs[:-1]])[: pairs.numel()]
            shard = {
                "nodes": own,
                "halo": halo,
                "edge_index": ends,
                "send": local[wanted % span],
                "send_counts": torch.bincount(wanted // span, minlength=ranks),
                "receive_counts": torch.bincount(part[halo], minlength=ranks),
                "entering": entering[both],
                "neighbors": torch.bincount(local[pairs[new] // span], minlength=own.numel()).int(),
            }
            del pairs, new
            yield shard | {name: whole[own] for name, whole in of_nodes.items()} | taken
            del shard, ends, taken  # before the next is made


def _put(folder: Path, name: str, rows: Tensor, rank: Tensor, ranks: int) -> None:
    """Add rows to the files of their processes, in the order in which they come."""
    counts = torch.bincount(rank, minlength=ranks).tolist()
    for number, piece in enumerate(rows[torch.argsort(rank, stable=True)].split(counts)):
        with (folder / f"{name}-{number}").open("ab") as file:
            piece.numpy().tofile(file)


def _take(folder: Path, name: str, rank: int, like: Tensor) -> Tensor:
    """The rows of a process, of the type and the columns of others; the file is gone."""
    path = folder / f"{name}-{rank}"
    rows = torch.from_numpy(np.fromfile(path, like[:0].numpy().dtype)).view(-1, *like.shape[1:])
    path.unlink()
    return rows
