"""Batches padded to a static shape, so that one CUDA graph or compiled program serves many batches.

Padding stands at the end: graphs of its own, which hold the padding nodes, and edges among those. No message, pool or
convolution crosses from one graph to another, so masked statistics are all it takes to make padding invisible.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Batch

from gssc.checks import fail

NODE_ROWS = ("x", "eigvecs", "rwse", "expander")
GRAPH_ROWS = ("eigvals", "eigmask")
ALIGNMENT = 64  # bytes; of tensors that are parts of one


def blank(rows: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """Rows of a padded batch with zeros for padding, whatever stood there (wrong shapes are left to later checks)."""
    if rows is None or mask is None or mask.shape[:1] != rows.shape[:1]:
        return rows
    return torch.where(mask if rows.dim() == 1 else mask.unsqueeze(1), rows, 0)


@dataclass(frozen=True)
class Shape:
    """Graphs, nodes and edges that a padded batch is filled up to; at least one node is padding."""

    graphs: int
    nodes: int
    edges: int

    def fits(self, graphs: int, nodes: int, edges: int) -> bool:
        return graphs <= self.graphs and nodes < self.nodes and edges <= self.edges


def rounded_up(rows: float, granularity: int = 64) -> int:
    """The next multiple, as shapes have them."""
    return (int(rows) // granularity + 1) * granularity


def static_shapes(node_counts: Tensor, edge_counts: Tensor, batch_size: int, granularity: int = 64) -> list[Shape]:
    """Shapes for random batches of a dataset, smallest first: the last one holds any batch.

    Totals of random batches scatter around their mean by sqrt(B) deviations of one graph: half of the batches fit the
    first shape, nearly all the second.
    """
    batch_size = min(batch_size, max(node_counts.numel(), 1))
    totals = []
    for counts in (node_counts, edge_counts):
        values = counts.double()
        mean, deviation = float(values.mean()) * batch_size, float(values.std(unbiased=False)) * batch_size**0.5
        largest = float(values.topk(batch_size).values.sum())
        totals.append([min(mean + spread * deviation, largest) for spread in (0.5, 3.5)] + [largest])
    rounded = ([rounded_up(total, granularity) for total in sizes] for sizes in totals)
    return list(dict.fromkeys(Shape(batch_size, *sizes) for sizes in zip(*rounded, strict=True)))


def smallest_fit(shapes: Sequence[Shape], graphs: int, nodes: int, edges: int) -> Shape:
    """The first shape that holds a batch."""
    fitting = (shape for shape in shapes if shape.fits(graphs, nodes, edges))
    return next(fitting, None) or fail("batch", f"no larger than {shapes[-1]}", (graphs, nodes, edges))


class StaticBatch:
    """Memory for the batches of one shape: a PyG ``Batch`` whose tensors stay where they are.

    One more graph stands at the end: it owns the padding nodes, and padding edges are loops of these, spread evenly.
    All tensors are parts of one, so that a batch on the CPU comes to a GPU in a single copy. All batches have the
    tensors of the ``example``, and as many graphs as the shape says.
    """

    def __init__(self, example: Batch, shape: Shape, device: torch.device) -> None:
        self.shape, self.device = shape, device
        rows = {"node": shape.nodes, "edge": shape.edges, "graph": shape.graphs + 1}
        layout: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {}
        for name, (tensor, kind) in _by_rows(example).items():
            as_it_is = name == "y" and kind == "graph"
            layout[name] = tensor.dtype, tuple(tensor.shape) if as_it_is else (rows[kind], *tensor.shape[1:])
        self.names = list(layout)
        layout |= {"edge_index": (torch.int64, (2, shape.edges)), "batch": (torch.int64, (shape.nodes,))}
        layout |= {"ptr": (torch.int64, (shape.graphs + 2,))}
        layout |= {"node_mask": (torch.bool, (shape.nodes,)), "edge_mask": (torch.bool, (shape.edges,))}
        self.memory, self.tensors = _allocate(layout, device, pin=False)
        # Two in turn, so that one is filled while the other is on its way.
        staged = [_allocate(layout, torch.device("cpu"), pin=True) for _ in range(2)] if device.type == "cuda" else []
        self._staged = [(*memory, torch.cuda.Event()) for memory in staged]
        self.batch = type(example)(_base_cls=type(example))  # which is how PyG makes one of the same class
        self.batch._num_graphs = shape.graphs + 1
        self.batch.num_nodes = shape.nodes
        for name, tensor in self.tensors.items():
            self.batch[name] = tensor

    @staticmethod
    def why_not(batch: Batch) -> str | None:
        """Why a batch cannot be padded, in a few words; None where it can."""
        if batch.edge_index is None:
            return "a batch has no edge_index"
        if "edge_label_index" in batch:
            return "a batch has pairs of nodes to predict, of which there is no fixed number"
        odd = [name for name, (tensor, kind) in _by_rows(batch).items() if not kind or tensor.layout != torch.strided]
        return f"the rows of batch.{odd[0]} are neither those of nodes, nor of edges, nor of graphs" if odd else None

    def load(self, batch: Batch) -> None:
        """Copy a batch that fits there, from the CPU without waiting for the device."""
        if batch.edge_index.device.type == self.device.type:
            self._fill(self.tensors, batch)
            return
        memory, tensors, copied = self._staged[0]
        self._staged.reverse()
        copied.synchronize()
        self._fill(tensors, batch)
        self.memory.copy_(memory, non_blocking=True)
        copied.record()

    def _fill(self, tensors: Mapping[str, Tensor], batch: Batch) -> None:
        graphs, nodes, edges = size_of(batch)
        for name in self.names:
            value, place = batch[name], tensors[name]
            rows = value.shape[0]
            place[:rows] = value
            if rows < place.shape[0]:
                # Classes of nodes: what F.cross_entropy leaves out.
                place[rows:] = -100 if name == "y" and not value.is_floating_point() else 0
        spare, more = self.shape.nodes - nodes, self.shape.edges - edges
        tensors["edge_index"][:, :edges] = batch.edge_index
        counting = torch.arange(more, device=batch.edge_index.device)
        tensors["edge_index"][:, edges:] = nodes + counting * spare // max(more, 1)
        for name, real, values in (
            ("batch", nodes, (batch.batch, graphs)),
            ("ptr", graphs + 1, (batch.ptr, self.shape.nodes)),
            ("node_mask", nodes, (True, False)),
            ("edge_mask", edges, (True, False)),
        ):
            tensors[name][:real], tensors[name][real:] = values


def size_of(batch: Batch) -> tuple[int, int, int]:
    """Graphs, nodes and edges, from the sizes of tensors."""
    return batch.ptr.shape[0] - 1, batch.batch.shape[0], batch.edge_index.shape[1]


def _by_rows(batch: Batch) -> dict[str, tuple[Tensor, str]]:
    """The other tensors of a batch, with what they have a row for: ``"node"``, ``"edge"``, ``"graph"`` or nothing.

    Where numbers are equal the name decides.
    """
    counts = dict(zip(("graph", "node", "edge"), size_of(batch), strict=True))
    by_rows = {}
    for name, tensor in batch._store.items():
        if not isinstance(tensor, Tensor) or name in ("edge_index", "batch", "ptr", "num_nodes"):
            continue
        rows = tensor.shape[0] if tensor.dim() else -1
        fitting = [kind for kind in ("node", "edge", "graph") if counts[kind] == rows]
        named = "node" if name in NODE_ROWS else "graph" if name in GRAPH_ROWS else "edge" if "edge" in name else ""
        if not fitting and name == "y" and rows > 0 and rows % counts["graph"] == 0:
            fitting = ["graph"]  # several targets each
        by_rows[name] = tensor, named if named in fitting else next(iter(fitting), "")
    return by_rows


def _allocate(
    layout: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], device: torch.device, pin: bool
) -> tuple[Tensor, dict[str, Tensor]]:
    """Tensors of these types and sizes as parts of one, which comes first."""
    sizes = [math.prod(size) * dtype.itemsize for dtype, size in layout.values()]
    aligned = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    memory = torch.zeros(sum(aligned), dtype=torch.uint8, device=device, pin_memory=pin)
    tensors = {}
    for (name, (dtype, size)), length, part in zip(layout.items(), sizes, memory.split(aligned), strict=True):
        tensors[name] = part[:length].view(dtype).view(size)
    return memory, tensors
