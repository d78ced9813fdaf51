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

import numpy as np
import torch
from torch import Tensor

from gssc.checks import fail


@dataclass(frozen=True)
class Bucket:
    """Graphs padded to one size, [count, size, ·]: which they are, and where their nodes stand.

    Args:
        count: B, number of graphs.
        size: Nodes of each, with padding.
        graphs: Their numbers, [B]; ``None``: all graphs of the batch, in their order.
        nodes: Their nodes, [M]; ``None``: all.
        slots: Where each node stands in [B · size]; ``None``: where it is, as all graphs have this size.
        sources: The other way round, which of its nodes stands in a slot, [B · size]: beyond the end of a graph its
            last one, for products with what is zero there.
    """

    count: int
    size: int
    graphs: Tensor | None = None
    nodes: Tensor | None = None
    slots: Tensor | None = None
    sources: Tensor | None = None

    def pad(self, rows: Tensor) -> Tensor:
        """Rows [N, D] of the packed batch as [B, size, D], zero where a graph is shorter; a view where none is."""
        if self.slots is not None:
            padded = rows.new_zeros(self.count * self.size, rows.shape[1])
            rows = padded.index_copy_(0, self.slots, rows if self.nodes is None else rows.index_select(0, self.nodes))
        return rows.reshape(self.count, self.size, rows.shape[1])

    def unpad(self, padded: Tensor, into: Tensor) -> None:
        """Write rows [B, size, D] back to their nodes in the packed batch ``into`` [N, D]."""
        rows = padded.flatten(0, 1)
        rows = rows if self.slots is None else rows.index_select(0, self.slots)
        if self.nodes is None:
            into.copy_(rows)
        else:
            into.index_copy_(0, self.nodes, rows)


def buckets(ptr: Tensor, num_nodes: int) -> tuple[Bucket, ...]:
    """Groups of graphs to work on one after the other, after a check that 0 = ptr[0] <= … <= ptr[G] = N.

    Graphs without nodes may be in none.
    """
    host = ptr.detach().to("cpu", torch.int64).contiguous().numpy()
    return _buckets(host.tobytes(), num_nodes, ptr.device)


@lru_cache(maxsize=64)
def _buckets(ptr: bytes, num_nodes: int, device: torch.device) -> tuple[Bucket, ...]:
    # Keyed by content: the layers of one model share it, and nothing can go stale.
    starts = np.frombuffer(ptr, dtype=np.int64)
    sizes = np.diff(starts)
    if starts.size < 1 or starts[0] != 0 or starts[-1] != num_nodes or (sizes < 0).any():
        came = starts.tolist() if starts.size < 9 else "others"
        fail("ptr", f"non-decreasing numbers from 0 to N = {num_nodes}", came)
    if sizes.size and (sizes == sizes[0]).all():
        return (Bucket(sizes.size, int(sizes[0])),)
    groups = []
    exponent = np.frexp(sizes.astype(np.float64))[1]
    if sizes.size and sizes.size * sizes.max() <= 2 * sizes.sum():
        exponent[:] = 0
    for e in np.unique(exponent[sizes > 0]):
        graphs = np.flatnonzero((exponent == e) & (sizes > 0))
        size = int(sizes[graphs].max())
        counts = sizes[graphs]
        first = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(first, counts)
        nodes = np.repeat(starts[graphs], counts) + within
        slots = np.repeat(np.arange(graphs.size) * size, counts) + within
        sources = (first[:, None] + np.minimum(np.arange(size), counts[:, None] - 1)).reshape(-1)
        graph, node, slot, source = (torch.from_numpy(part).to(device) for part in (graphs, nodes, slots, sources))
        whole = graphs.size == sizes.size
        groups.append(Bucket(graphs.size, size, None if whole else graph, None if whole else node, slot, source))
    return tuple(groups)


def graph_slices(ptr: Tensor) -> Iterator[slice]:
    """The nodes of one graph after another: the loop of the plain references."""
    for begin, end in pairwise(ptr.tolist()):
        yield slice(begin, end)
