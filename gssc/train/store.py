"""A prepared dataset on the device: batches are gathered by index, without collating, copying or waiting."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.datasets.flat import FlatGraphs, members
from gssc.datasets.negatives import NegativeSampler, pairs_of
from gssc.spectra.sparse_operator import sparse_rows

# Features of which less than this share is not zero are multiplied faster as a CSR tensor; few columns never are.
SPARSE, MANY_COLUMNS = 0.2, 64


def mostly_zeros(x: Tensor | None) -> Tensor | None:
    """Continuous columns [N, D] on a CPU as a CSR tensor, where that is the cheaper form of them."""
    if x is None or not x.is_floating_point() or x.shape[1] < MANY_COLUMNS:
        return x
    places = x != 0
    counts = places.sum(1)
    if int(counts.sum()) > SPARSE * x.numel():
        return x
    ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return sparse_rows(ptr, places.nonzero()[:, 1], x[places], x.shape)


@dataclass(frozen=True)
class Batch:
    """Arguments of ``GSSC.forward``, targets, and which rows of the output count (None: all).

    ``at`` has the number of each row of the output in the store's targets.
    """

    inputs: dict[str, Any]
    y: Tensor
    mask: Tensor | None
    at: Tensor


class GraphStore:
    """Flat tensors of G graphs on a device.

    Every tensor ends in one row of zeros, and graph G is an empty one: what padding points to. Floating point is kept
    in the default dtype.

    Args:
        graphs: The graphs, edges sorted by destination.
        spectra: ``eigvals [G, K]``, ``eigvecs [N, K]``, ``eigmask [G, K]``, ``rwse [N, steps]`` and ``expander
            [N, r]``, as far as a model wants them.
        device: Where to keep all of it.
        node_level: Whether targets belong to nodes.
    """

    def __init__(
        self, graphs: FlatGraphs, spectra: Mapping[str, Tensor], device: str | torch.device, node_level: bool
    ) -> None:
        self.device = torch.device(device)
        self.node_level = node_level
        self.num_graphs = graphs.num_graphs
        # Sizes stay on the host as well: the shape of a batch is known before the device has gathered it.
        self.node_counts, self.edge_counts = graphs.ptr.diff().cpu(), graphs.edge_ptr.diff().cpu()
        # Starts of G graphs, of an empty one after them, and its end: [G + 2].
        self.ptr, self.edge_ptr = (torch.cat([p, p[-1:]]).to(self.device) for p in (graphs.ptr, graphs.edge_ptr))
        self.zero_rows = graphs.num_nodes, graphs.num_edges
        extents = [part for ptr in (self.ptr, self.edge_ptr) for part in (ptr[:-1], ptr.diff())]
        self.extents = torch.stack(extents)  # [4, G + 1]: first node, nodes, first edge, edges
        # Node numbers inside a graph fit into 32 bits.
        edges = self._keep(graphs.edge_index.t().to(torch.int32))
        self._ends = edges.t().contiguous()  # sources, and destinations
        self.edge_index = self._ends.t()
        self.of_nodes = self._named(x=graphs.x, **{name: spectra.get(name) for name in ("eigvecs", "rwse", "expander")})
        self.of_edges = self._named(edge_attr=graphs.edge_attr)
        self.of_graphs = self._named(eigvals=spectra.get("eigvals"), eigmask=spectra.get("eigmask"))
        self.y = self._keep(graphs.y)
        self.pairs: Tensor | None = None
        self.negatives: NegativeSampler | None = None  # that training draws from, epoch by epoch
        if graphs.pair_index is not None:
            self.replace_pairs(*pairs_of(graphs), graphs.y)
        self.mask = None if graphs.mask is None else self._keep(graphs.mask)
        self.whole: Batch | None = None  # of one graph alone, which is every batch

    def _named(self, **tensors: Tensor | None) -> dict[str, Tensor]:
        return {name: self._keep(tensor) for name, tensor in tensors.items() if tensor is not None}

    def _keep(self, rows: Tensor) -> Tensor:
        """Rows and one of zeros on the device, floating point in the default dtype, that of the model."""
        rows = rows.to(torch.get_default_dtype()) if rows.is_floating_point() else rows
        return torch.cat([rows, rows.new_zeros(1, *rows.shape[1:])]).to(self.device)

    def complete(self, rows: Tensor) -> Tensor:
        """Outputs of all graphs as rows of ``y``: they are."""
        return rows

    def sizes(self, graphs: Tensor) -> tuple[int, int]:
        """Nodes and edges of the graphs with these numbers (on the host; G means an empty graph)."""
        real = graphs[graphs < self.num_graphs]
        return int(self.node_counts[real].sum()), int(self.edge_counts[real].sum())

    def batch(self, graphs: Tensor) -> Batch:
        """The graphs with these numbers [B] as one batch."""
        blank = bool((graphs == self.num_graphs).any())
        alone = self.device.type == "cpu" and self.num_graphs == graphs.numel() == 1 and not blank
        batch = self.whole if alone else None
        if batch is None:
            batch = self.gather(graphs.to(self.device, non_blocking=True), *self.sizes(graphs), blank=blank)
        if alone and self.whole is None:
            self.whole = batch = replace(batch, inputs=batch.inputs | {"x": mostly_zeros(batch.inputs["x"])})
        if self.pairs is None:
            return batch
        at, starts = (rows.to(self.device) for rows in members(self.pair_ptr, graphs))
        pairs = self.pairs[at].t() + batch.inputs["ptr"][:-1].repeat_interleave(starts.diff(), output_size=at.numel())
        return Batch(batch.inputs | {"edge_label_index": pairs}, self.y[at], None, at)

    def gather(self, index: Tensor, nodes: int, edges: int, padded: bool = False, blank: bool = False) -> Batch:
        """A batch of given size from graph numbers on the device [B]: no step waits for the device.

        Where ``padded``, one more graph follows that owns the nodes beyond those of the graphs; edges beyond theirs
        are loops of its nodes, and ``node_mask`` and ``edge_mask`` mark what is real. ``blank``: whether the empty
        graph may be among the graphs.
        """
        # Every line is a launch on a GPU or two. Graph G, which is empty, comes last: it owns the padding.
        graphs = index.numel()
        last = torch.cat([index, index.new_full((1,), self.num_graphs)])
        starts, counts = self.extents.index_select(1, last).unflatten(0, (2, 2)).unbind(1)
        ends = counts.cumsum(1)
        first = ends - counts
        shifts = starts - first
        batch, node, node_mask = self._slots(ends[0], shifts[0], nodes, self.zero_rows[0])
        owner, edge, edge_mask = self._slots(ends[1], shifts[1], edges, self.zero_rows[1])
        edge_index = self._ends.index_select(1, edge) + first[0].index_select(0, owner)
        ptr = torch.cat([first[0] if padded else first[0, :graphs], ends.new_full((1,), nodes)])
        if padded:
            # Padding edges are loops spread evenly over the padding nodes, in order of destination like all others.
            index, (real_nodes, real_edges) = last, ends[:, -1]
            beyond, spare = torch.arange(edges, device=self.device) - real_edges, nodes - real_nodes
            loops = real_nodes + beyond * spare // (edges - real_edges).clamp(min=1)
            edge_index = torch.where(edge_mask, edge_index, loops)
        inputs: dict[str, Any] = {name: tensor[node] for name, tensor in self.of_nodes.items()}
        inputs |= {name: tensor[edge] for name, tensor in self.of_edges.items()}
        inputs |= {name: tensor[index] for name, tensor in self.of_graphs.items()}
        inputs |= {"x": inputs.get("x"), "edge_index": edge_index, "batch": batch}
        inputs |= {"num_graphs": index.numel(), "num_nodes": nodes, "ptr": ptr}
        if padded:
            inputs |= {"node_mask": node_mask, "edge_mask": edge_mask}
        at = node if self.node_level else index
        if self.pairs is not None:  # the rows are those of pairs
            return Batch(inputs, self.y, None, at)
        mask = None if self.mask is None else self.mask[at]
        real = node_mask if self.node_level else index < self.num_graphs
        if padded or blank:
            mask = real if mask is None else mask & real
        return Batch(inputs, self.y[at], mask, at)

    def replace_pairs(self, index: Tensor, ptr: Tensor, y: Tensor) -> None:
        """Other pairs of nodes [2, M] to predict, those of graph g in ``ptr[g]:ptr[g + 1]``, with targets [M, ...]."""
        self.pairs, self.pair_ptr = self._keep(index.t().contiguous()), torch.cat([ptr, ptr[-1:]]).cpu()
        self.y = self._keep(y)

    def replace_targets(self, y: Tensor) -> None:
        """Learn something else: [rows, outputs], for classes their probabilities."""
        if y.shape[0] != self.y.shape[0] - 1:
            fail("targets", f"{self.y.shape[0] - 1} rows", tuple(y.shape))
        self.y, self.whole = self._keep(y), None

    def _slots(self, ends: Tensor, shifts: Tensor, total: int, zero_row: int) -> tuple[Tensor, Tensor, Tensor]:
        """Owner and source row of each of ``total`` slots, of which graph b takes those before ``ends[b]``.

        Slots beyond the last graph belong to owner B and read the row of zeros.
        """
        slot = torch.arange(total, device=self.device)
        owner = torch.searchsorted(ends[:-1], slot, right=True)
        real = slot < ends[-1]
        return owner, torch.where(real, slot + shifts.index_select(0, owner), zero_row), real
