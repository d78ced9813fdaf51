"""Many graphs as flat tensors: the form in which a whole dataset is read, solved and hashed at once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import cumsum

from gssc.checks import check_shape, fail
from gssc.spectra.operators import Directed, adjacency_matrix, check_edges, check_weights


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
        counts = self.ptr.diff()
        wrong = (self.edge_index < 0) | (self.edge_index >= counts.repeat_interleave(self.edge_ptr.diff()))
        if wrong.any():
            edge = int(wrong.any(dim=0).nonzero()[0])
            graph = int(torch.searchsorted(self.edge_ptr, edge, right=True)) - 1
            expected = f"node numbers in 0..{int(counts[graph]) - 1}"
            fail(f"edge_index of graph {graph}", expected, self.edge_index[:, edge].tolist())
        if self.weight is not None:
            check_shape("edge_weight", self.weight, self.edge_index.shape[1])
            bad = int((~self.weight.isfinite()).sum())
            if bad:
                fail("edge_weight", "finite numbers", f"{bad} non-finite of {self.weight.numel()}")

    @property
    def num_graphs(self) -> int:
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        return int(self.ptr[-1])

    def adjacency(self, graph: Tensor, size: int, directed: Directed) -> sp.csr_array:
        """The symmetric adjacency matrix of these graphs [B], each filled up to ``size`` nodes, [B size, B size]."""
        start, stop = self.edge_ptr[graph], self.edge_ptr[graph + 1]
        place = torch.arange(graph.numel()).repeat_interleave(stop - start)
        edge = torch.arange(place.numel()) + (stop - (stop - start).cumsum(0)).index_select(0, place)
        ends = self.edge_index.index_select(1, edge) + size * place
        weight = None if self.weight is None else self.weight.index_select(0, edge)
        return adjacency_matrix(ends, weight, graph.numel() * size, directed, graph)


def pack(
    dataset: InMemoryDataset | Sequence[Data] | PackedGraphs, weight_attr: str | None = "edge_weight"
) -> PackedGraphs:
    """Read a dataset: the collated storage of an InMemoryDataset where it has one, else graph by graph."""
    if isinstance(dataset, PackedGraphs):
        return dataset
    if isinstance(dataset, InMemoryDataset) and dataset._indices is None and dataset.slices is not None:
        collated, slices = dataset._data, dataset.slices
        nodes = _collated_counts(collated, slices)
        if nodes is not None:
            edge_ptr = torch.as_tensor(slices.get("edge_index", torch.zeros(nodes.numel() + 1)))
            weight = collated.get(weight_attr) if weight_attr in slices else None
            return _packed(edges_of(collated, "dataset"), weight, nodes, edge_ptr)
    ends: list[Tensor] = []
    weights: list[Tensor | None] = []
    counts: list[int] = []
    for number, graph in enumerate(stored_graphs(dataset)):
        name = f"dataset[{number}]"
        edge_index, weight, num_nodes = read_graph(graph, weight_attr, name)
        check_shape(f"edge_index of {name}", edge_index, 2, None)
        if weight is not None:
            weight = check_weights(f"{weight_attr} of {name}", weight, edge_index.shape[1])
        ends.append(edge_index.detach().cpu())
        weights.append(weight)
        counts.append(num_nodes)
    sizes = [edge_index.shape[1] for edge_index in ends]
    weight = None
    if any(w is not None for w in weights):
        ones = torch.ones(max(sizes), dtype=torch.float64)
        weight = torch.cat([ones[:size] if w is None else w for size, w in zip(sizes, weights, strict=True)])
    edge_index = torch.cat(ends, dim=1) if ends else torch.empty(2, 0, dtype=torch.long)
    nodes, edges = (torch.tensor(numbers, dtype=torch.long) for numbers in (counts, sizes))
    return _packed(edge_index, weight, nodes, cumsum(edges))


def read_graph(data: Any, weight_attr: str | None, name: str = "data") -> tuple[Tensor, Tensor | None, int]:
    """``edge_index``, the weights where there are any, and the number of nodes of a PyG ``Data``, not yet checked."""
    if not isinstance(data, Data):
        fail(name, "a torch_geometric.data.Data", type(data).__name__)
    if data.num_nodes is None:
        fail(name, "a graph that knows its number of nodes (set data.num_nodes)", "None")
    return edges_of(data, name), None if weight_attr is None else data.get(weight_attr), data.num_nodes


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


def _collated_counts(store: Any, slices: Mapping[str, Any]) -> Tensor | None:
    """Nodes of every graph from collated storage, [G]; None where only the graphs themselves know."""
    if not isinstance(store, Data):
        return None
    counts = getattr(store, "_num_nodes", None)  # where PyG keeps explicit numbers of nodes
    if counts is not None:
        return torch.as_tensor(counts, dtype=torch.long)
    for key in ("x", "pos", "z"):
        if key in slices and isinstance(store.get(key), Tensor):
            return torch.as_tensor(slices[key], dtype=torch.long).diff()
    return None


def _packed(edge_index: Tensor, weight: Tensor | None, counts: Tensor, edge_ptr: Tensor) -> PackedGraphs:
    check_edges(edge_index)
    if weight is not None:
        weight = check_weights("edge_weight", weight, edge_index.shape[1])
    return PackedGraphs(edge_index.detach().cpu().long(), weight, cumsum(counts), edge_ptr.long())
