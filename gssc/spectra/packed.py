"""Many graphs as flat tensors: the form in which a whole dataset is read, solved and hashed at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from gssc.checks import check_shape, fail
from gssc.spectra.operators import Directed, adjacency_matrix, check_weights


@contextmanager
def single_thread() -> Iterator[int]:
    """One thread for PyTorch's operations: on flat tensors of this size, waking threads costs more than they win.

    Yields the number of threads there were, and are again afterwards.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield threads
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class PackedGraphs:
    """G graphs end to end, on the CPU.

    ``edge_index [2, E]`` numbers the nodes of each graph from 0; graph g owns nodes ``ptr[g]:ptr[g + 1]`` and edges
    ``edge_ptr[g]:edge_ptr[g + 1]``; ``weight`` is [E] in float64, or None for ones.
    """

    edge_index: Tensor
    weight: Tensor | None
    ptr: Tensor
    edge_ptr: Tensor

    def __post_init__(self) -> None:
        check_shape("edge_index", self.edge_index, 2, int(self.edge_ptr[-1]))
        counts, edges = self.ptr.diff(), self.edge_ptr.diff()
        if self.edge_index.numel():
            # Two passes find almost every dataset sound; the per-edge comparison names the graph that is not.
            owner = counts.repeat_interleave(edges)
            wrong = ((self.edge_index < 0) | (self.edge_index >= owner)).any(dim=0)
            if wrong.any():
                edge = int(wrong.nonzero()[0])
                graph = int(torch.searchsorted(self.edge_ptr, edge, right=True)) - 1
                fail(
                    f"edge_index of graph {graph}",
                    f"node numbers in 0..{int(counts[graph]) - 1}",
                    self.edge_index[:, edge].tolist(),
                )
        if self.weight is not None:
            check_shape("edge_weight", self.weight, self.edge_index.shape[1])
            if not bool(self.weight.isfinite().all()):
                bad = int((~self.weight.isfinite()).sum())
                fail("edge_weight", "finite numbers", f"{bad} non-finite of {self.weight.numel()}")

    @property
    def num_graphs(self) -> int:
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        return int(self.ptr[-1])

    def adjacency(self, graph: int, directed: Directed) -> sp.csr_array:
        """The symmetric adjacency matrix of one graph."""
        edges = slice(int(self.edge_ptr[graph]), int(self.edge_ptr[graph + 1]))
        weight = None if self.weight is None else self.weight[edges]
        nodes = int(self.ptr[graph + 1] - self.ptr[graph])
        return adjacency_matrix(self.edge_index[:, edges], weight, nodes, directed)


def pack(
    dataset: InMemoryDataset | Sequence[Data] | PackedGraphs, weight_attr: str | None = "edge_weight"
) -> PackedGraphs:
    """Read a dataset: the collated storage of an InMemoryDataset where it has one, else graph by graph."""
    if isinstance(dataset, PackedGraphs):
        return dataset
    if isinstance(dataset, InMemoryDataset) and dataset._indices is None and dataset.slices is not None:
        collated = dataset._data
        counts = _collated_counts(dataset)
        if counts is not None and isinstance(collated, Data):
            slices: dict[str, Any] = dataset.slices
            edges_of(collated, "dataset")
            edge_ptr = slices.get("edge_index")
            weight = collated.get(weight_attr) if weight_attr in slices else None
            if edge_ptr is None:
                edge_ptr = torch.zeros(counts.numel() + 1, dtype=torch.long)
            return _packed(collated.edge_index, weight, counts, torch.as_tensor(edge_ptr))
    graphs = stored_graphs(dataset)
    for number, graph in enumerate(graphs):
        if not isinstance(graph, Data):
            fail(f"dataset[{number}]", "a torch_geometric.data.Data", type(graph).__name__)
        if graph.num_nodes is None:
            fail(f"dataset[{number}]", "a graph that knows its number of nodes (set data.num_nodes)", "None")
    ends = [edges_of(g, f"dataset[{number}]") for number, g in enumerate(graphs)]
    weights = [None if weight_attr is None else g.get(weight_attr) for g in graphs]
    for number, (e, w) in enumerate(zip(ends, weights, strict=True)):
        check_shape(f"edge_index of dataset[{number}]", e, 2, None)
        if w is not None:
            weights[number] = check_weights(f"{weight_attr} of dataset[{number}]", w, e.shape[1])
    weight = None
    if any(w is not None for w in weights):
        weight = torch.cat(
            [
                torch.ones(e.shape[1], dtype=torch.float64) if w is None else w.detach().cpu().double()
                for e, w in zip(ends, weights, strict=True)
            ]
        )
    counts = torch.tensor([g.num_nodes for g in graphs], dtype=torch.long)
    sizes = torch.tensor([e.shape[1] for e in ends], dtype=torch.long)
    edge_index = torch.cat([e.detach().cpu() for e in ends], dim=1) if ends else None
    return _packed(edge_index, weight, counts, _starts(sizes))


def edges_of(data: Data, name: str = "data") -> Tensor:
    """``edge_index``; none means no edges, unless they are stored in another form."""
    edge_index: Tensor | None = data.edge_index
    if edge_index is not None:
        return edge_index
    for other in ("adj_t", "adj"):
        if other in data:
            fail(name, "a graph with its edge_index", f"one with {other} alone")
    return torch.empty(2, 0, dtype=torch.long)


def stored_graphs(dataset: InMemoryDataset | Sequence[Data]) -> list[Any]:
    """The graphs as they are stored: an InMemoryDataset's ``transform`` is for later, when they are used."""
    if isinstance(dataset, InMemoryDataset):
        return [dataset.get(i) for i in dataset.indices()]
    return list(dataset)


def _collated_counts(dataset: InMemoryDataset) -> Tensor | None:
    """Nodes of every graph from collated storage, [G]; None where only the graphs themselves know."""
    store, slices = dataset._data, dataset.slices
    if not isinstance(store, Data) or slices is None:
        return None
    counts = getattr(store, "_num_nodes", None)  # where PyG keeps explicit numbers of nodes
    if counts is not None:
        return torch.as_tensor(counts, dtype=torch.long)
    for key in ("x", "pos", "z"):
        if key in slices and isinstance(store.get(key), Tensor):
            return torch.as_tensor(slices[key], dtype=torch.long).diff()
    return None


def _starts(sizes: Tensor) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])


def _packed(edge_index: Tensor | None, weight: Tensor | None, counts: Tensor, edge_ptr: Tensor) -> PackedGraphs:
    if edge_index is None:
        edge_index = torch.empty(2, 0, dtype=torch.long)
    check_shape("edge_index", edge_index, 2, None)
    if edge_index.dtype.is_floating_point or edge_index.dtype.is_complex or edge_index.dtype == torch.bool:
        fail("edge_index", "an integer tensor", edge_index.dtype)
    if weight is not None:
        weight = check_weights("edge_weight", weight, edge_index.shape[1]).detach().cpu().double()
    return PackedGraphs(edge_index.detach().cpu().long(), weight, _starts(counts), edge_ptr.long())
