"""How a packed batch of graphs is laid out for dense batched products.

Nodes of all graphs stand end to end; ``ptr [G + 1]`` marks where each begins. Graphs of equal size are a plain view
[G, n, ·]; one graph is the case G = 1. Otherwise graphs are grouped into buckets whose sizes differ by less than a
factor of two and padded with zero rows to the largest of the bucket: at most 2 N rows in all, and at most log2(n)
batched products instead of a loop over graphs. Where one bucket for all graphs has no more rows than that, it is one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from gssc.checks import fail


@dataclass(frozen=True)
class Bucket:
    """Graphs padded to one size: their numbers [B], their nodes [M], and where each node stands in [B * size].

    ``sources`` [B * size] says the other way round which node stands in a slot: in those beyond the end of a graph,
    its last one.
    """

    graphs: Tensor
    nodes: Tensor
    slots: Tensor
    sources: Tensor
    size: int
    whole: bool  # all graphs of the batch, in their order

    def pad(self, rows: Tensor) -> Tensor:
        """Rows [N, D] of the packed batch as [B, size, D], zero where a graph is shorter."""
        out = rows.new_zeros(self.graphs.numel() * self.size, rows.shape[1])
        out.index_copy_(0, self.slots, rows if self.whole else rows.index_select(0, self.nodes))
        return out.view(self.graphs.numel(), self.size, rows.shape[1])

    def repeat(self, rows: Tensor) -> Tensor:
        """Like `pad` in one pass, where a graph is shorter with its last row: for products with what is zero there."""
        return rows.index_select(0, self.sources).view(self.graphs.numel(), self.size, rows.shape[1])

    def unpad(self, padded: Tensor, into: Tensor) -> None:
        """Write rows [B, size, D] back to their nodes in the packed batch ``into`` [N, D]."""
        if self.whole:
            torch.index_select(padded.flatten(0, 1), 0, self.slots, out=into)
        else:
            into.index_copy_(0, self.nodes, padded.flatten(0, 1).index_select(0, self.slots))

    def put(self, results: Tensor, into: Tensor) -> None:
        """Write results [B, ...] to the rows of their graphs in ``into`` [G, ...]."""
        into.index_copy_(0, self.graphs, results)

    def of(self, per_graph: Tensor) -> Tensor:
        """What belongs to these graphs, of a tensor [G, ...]."""
        return per_graph if self.whole else per_graph.index_select(0, self.graphs)


@dataclass(frozen=True)
class Uniform:
    """The `Bucket` of a batch whose graphs all have one size: views, nothing is copied."""

    size: int
    count: int
    whole: ClassVar[bool] = True

    def pad(self, rows: Tensor) -> Tensor:
        return rows.reshape(self.count, self.size, rows.shape[1])

    repeat = pad

    def unpad(self, padded: Tensor, into: Tensor) -> None:
        into.copy_(padded.flatten(0, 1))

    def put(self, results: Tensor, into: Tensor) -> None:
        into.copy_(results)

    def of(self, per_graph: Tensor) -> Tensor:
        return per_graph


@dataclass(frozen=True)
class Layout:
    """Either ``uniform`` (every graph has this many nodes) or a tuple of buckets."""

    uniform: int | None
    buckets: tuple[Bucket, ...]


def layout(ptr: Tensor, num_nodes: int) -> Layout:
    """The layout of a batch, after a check that ``ptr`` is one: 0 = ptr[0] <= … <= ptr[G] = N."""
    host = ptr.detach().to("cpu", torch.int64).contiguous().numpy()
    return _layout(host.tobytes(), num_nodes, ptr.device)


def buckets(ptr: Tensor, num_nodes: int) -> tuple[Bucket, ...] | tuple[Uniform]:
    """The groups of graphs to work on one after the other; graphs without nodes may be in none."""
    plan = layout(ptr, num_nodes)
    return plan.buckets if plan.uniform is None else (Uniform(plan.uniform, ptr.numel() - 1),)


@lru_cache(maxsize=64)
def _layout(ptr: bytes, num_nodes: int, device: torch.device) -> Layout:
    # Keyed by content: the layers of one model share it, and nothing can go stale.
    starts = np.frombuffer(ptr, dtype=np.int64)
    sizes = np.diff(starts)
    if starts.size < 1 or starts[0] != 0 or starts[-1] != num_nodes or (sizes < 0).any():
        came = starts.tolist() if starts.size < 9 else "others"
        fail("ptr", f"non-decreasing numbers from 0 to N = {num_nodes}", came)
    if sizes.size and (sizes == sizes[0]).all():
        return Layout(int(sizes[0]), ())
    buckets = []
    exponent = np.frexp(sizes.astype(np.float64))[1]
    if sizes.size and sizes.size * sizes.max() <= 2 * sizes.sum():
        exponent[:] = 0
    for e in np.unique(exponent[sizes > 0]):
        graphs = np.flatnonzero((exponent == e) & (sizes > 0))
        size = int(sizes[graphs].max())
        counts = sizes[graphs]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        nodes = np.repeat(starts[graphs], counts) + within
        slots = np.repeat(np.arange(graphs.size) * size, counts) + within
        sources = (starts[graphs, None] + np.minimum(np.arange(size), counts[:, None] - 1)).reshape(-1)
        graph, node, slot, source = (torch.from_numpy(part).to(device) for part in (graphs, nodes, slots, sources))
        buckets.append(Bucket(graph, node, slot, source, size, graphs.size == sizes.size))
    return Layout(None, tuple(buckets))


def graph_slices(ptr: Tensor) -> Iterator[slice]:
    """The nodes of one graph after another: the loop of the plain references."""
    for begin, end in pairwise(ptr.tolist()):
        yield slice(begin, end)
