"""Many graphs as flat tensors with features and targets: the form in which a dataset is packed and trained on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import cumsum, degree, scatter

from gssc.checks import check_choice, check_shape, fail
from gssc.nn.encoders import Features
from gssc.readers import DATASET, parse_json
from gssc.spectra.packed import PackedGraphs, pack
from gssc.tasks import Task

Graphs: TypeAlias = InMemoryDataset | Sequence[Data]
Rows: TypeAlias = Tensor | slice
PIECE = 1 << 24  # numbers that are looked at together
DEGREE_PROFILE = "degree_profile"  # columns of ``x`` that are computed


@dataclass(frozen=True)
class FlatGraphs:
    """G graphs end to end.

    Graph g owns nodes ``ptr[g]:ptr[g + 1]`` and edges ``edge_ptr[g]:edge_ptr[g + 1]``; ``edge_index [2, E]`` numbers
    the nodes of each graph from 0. ``x`` [N, D], ``edge_attr`` [E, D] and ``weight`` [E] may be missing. ``y`` has one
    row per graph, node or pair of nodes, as its task says: [rows, T] in floating point (NaN: unknown), or [rows] of
    class numbers. ``mask`` [rows], where given, marks the rows that count. For level ``"edge"``, ``pair_index`` [2, M]
    has the pairs, with nodes numbered as in ``edge_index``; graph g owns ``pair_ptr[g]:pair_ptr[g + 1]`` of them.
    """

    ptr: Tensor
    edge_ptr: Tensor
    edge_index: Tensor
    x: Tensor | None
    edge_attr: Tensor | None
    y: Tensor
    weight: Tensor | None = None
    mask: Tensor | None = None
    pair_index: Tensor | None = None
    pair_ptr: Tensor | None = None

    @property
    def num_graphs(self) -> int:
        return self.ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        return int(self.ptr[-1])

    @property
    def num_edges(self) -> int:
        return int(self.edge_ptr[-1])

    def __len__(self) -> int:
        return self.num_graphs

    def packed(self) -> PackedGraphs:
        """The graphs alone, as `prepare_spectra` reads them."""
        return PackedGraphs(self.edge_index.cpu(), self.weight, self.ptr.cpu(), self.edge_ptr.cpu())

    def ends(self) -> Tensor:
        """Source and destination of every edge, [2, E], with nodes counted through all graphs."""
        return self.edge_index + self.ptr[:-1].repeat_interleave(self.edge_ptr.diff())

    def counted_targets(self) -> Tensor:
        """The rows of ``y`` that count."""
        return self.y if self.mask is None else self.y[self.mask]

    def sorted_by_destination(self) -> "FlatGraphs":
        """The same graphs with the edges of each ordered by destination, then source: once, for all batches.

        Parallel edges keep their order. Graphs that are ordered already come back as they are.
        """
        source, destination = self.ends()
        key = destination * max(self.num_nodes, 1) + source
        if bool((key[1:] >= key[:-1]).all()):
            return self
        every = slice(None)
        return self._taken(self.ptr, self.edge_ptr, every, torch.argsort(key, stable=True), every, self.pair_ptr)

    def part(self, start: int, stop: int, rows: Literal["graph", "node", "edge"]) -> "FlatGraphs":
        """Graphs ``start:stop``; ``rows`` says what the rows of ``y`` and ``mask`` are."""
        nodes = slice(int(self.ptr[start]), int(self.ptr[stop]))
        edges = slice(int(self.edge_ptr[start]), int(self.edge_ptr[stop]))
        ptr, edge_ptr = (t[start : stop + 1] - t[start] for t in (self.ptr, self.edge_ptr))
        if rows == "edge":
            return select(self, torch.arange(start, stop), rows)
        return self._taken(ptr, edge_ptr, nodes, edges, nodes if rows == "node" else slice(start, stop))

    def _taken(
        self, ptr: Tensor, edge_ptr: Tensor, nodes: Rows, edges: Rows, targets: Rows, pair_ptr: Tensor | None = None
    ) -> "FlatGraphs":
        index = {"x": nodes, "edge_attr": edges, "weight": edges, "y": targets, "mask": targets}
        present = [name for name in index if getattr(self, name) is not None]
        rows: dict[str, Any] = {name: getattr(self, name)[index[name]] for name in present}
        if self.pair_index is not None:
            rows |= {"pair_ptr": pair_ptr, "pair_index": self.pair_index[:, targets].contiguous()}
        edge_index = self.edge_index[:, edges].contiguous()
        return replace(self, ptr=ptr, edge_ptr=edge_ptr, edge_index=edge_index, **rows)


@dataclass(frozen=True)
class GraphDataset:
    """A dataset ready for a model: what is to be predicted, what the inputs look like, and the graphs of each split.

    ``node_features`` and ``edge_features`` are what the encoders of `GSSC` take: a number of continuous columns, the
    vocabulary size of every categorical column, or None. ``standardize`` holds mean and standard deviation of the
    columns of ``x`` or ``edge_attr`` that were standardised on the training part; nothing where rows have sum 1. Of a
    dataset that is ``mapped``, columns stay in files as they were stored, see `gssc.datasets.infer.ready`.
    """

    name: str
    task: Task
    node_features: Features
    edge_features: Features
    splits: dict[str, FlatGraphs]
    standardize: dict[str, tuple[list[float], list[float]]]
    mapped: bool = False

    def about(self) -> dict[str, Any]:
        """All but the graphs, as plain values: what a run folder keeps as ``dataset.json``."""
        weighted = any(graphs.weight is not None for graphs in self.splits.values())
        about = vars(self) | {"task": vars(self.task)}
        del about["splits"], about["mapped"]
        return about | ({"edge_weights": True} if weighted else {})

    def node_counts(self) -> Tensor:
        """Nodes of every graph, split after split."""
        return torch.cat([torch.zeros(0, dtype=torch.long), *(graphs.ptr.diff() for graphs in self.splits.values())])

    def largest(self) -> int:
        """Nodes of the largest graph."""
        return max(self.node_counts().tolist(), default=0)

    def content(self) -> str:
        """A name for the graphs themselves, in hexadecimal: equal for equal graphs in equal splits.

        The order in which a graph's edges are listed makes no difference, as it makes none for training; of one that
        is mapped it does.
        """
        digest = hashlib.blake2b(digest_size=16)
        for split, graphs in self.splits.items():
            ordered = graphs if self.mapped else graphs.sorted_by_destination()
            for field in fields(FlatGraphs):
                value = getattr(ordered, field.name)
                if value is None and field.name.startswith("pair_"):
                    continue  # names from before there were pairs stay as they were
                about = None if value is None else (str(value.dtype), list(value.shape))
                digest.update(f"|{split}.{field.name}:{about}|".encode())
                if value is not None and self.mapped and field.name == "edge_index":
                    value = value.T
                for piece in () if value is None else pieces(value):
                    digest.update(piece.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()


def pieces(rows: Tensor) -> Sequence[Tensor]:
    """Rows [rows, ...] as pieces small enough to compute with, for what stays in a file."""
    return rows.split(max(1, PIECE // max(1, rows[:1].numel())))


def from_about(about: Mapping[str, Any]) -> GraphDataset:
    """The dataset that `GraphDataset.about` describes, without any graphs."""
    about = parse_json(json.dumps(about, default=list), "dataset.json", DATASET)
    task, node, edge = (about[name] for name in ("task", "node_features", "edge_features"))
    for name in task:
        check_choice("dataset.json, key of task", name, [field.name for field in fields(Task)])
    values: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in task.items()}
    for name in ("shift", "scale"):
        if isinstance(numbers := values.get(name), tuple) and len(numbers) != values["outputs"]:
            fail(f"dataset.json, task.{name}", f"{values['outputs']} numbers", len(numbers))
    node, edge = (tuple(features) if isinstance(features, list) else features for features in (node, edge))
    standardize = {name: (list(mean), list(std)) for name, (mean, std) in about["standardize"].items()}
    return GraphDataset(about["name"], Task(**values), node, edge, {}, standardize)


def concatenate(parts: Sequence[FlatGraphs]) -> FlatGraphs:
    """Several sets of graphs, one behind the other."""
    joined: dict[str, Tensor | None] = {}
    for field in fields(FlatGraphs):
        values = [getattr(part, field.name) for part in parts]
        present = [value for value in values if value is not None]
        if present and len(present) < len(values):
            fail(field.name, "given in every part or in none", f"{len(present)} of {len(values)}")
        if field.name.endswith("ptr"):
            joined[field.name] = cumsum(torch.cat([value.diff() for value in present])) if present else None
        else:
            joined[field.name] = torch.cat(present, dim=1 if field.name.endswith("index") else 0) if present else None
    return FlatGraphs(**joined)  # type: ignore[arg-type]


def flatten(dataset: Graphs, task: Task, *, node: Sequence[str] = ("x",)) -> FlatGraphs:
    """Read PyG data: ``node`` names the attributes whose columns make up ``x``; or it is `degree_profile`."""
    flat, y = pack_columns(dataset, node)
    if y is None:
        fail("y", "a target for every graph or node", "no y")
    rows = flat.num_graphs if task.level == "graph" else flat.num_nodes
    return replace(flat, y=task.targets(y, rows))


def pack_columns(dataset: Graphs, node: Sequence[str] = ("x",)) -> tuple[FlatGraphs, Tensor | None]:
    """PyG data as flat tensors without targets (``y`` is empty), and what they call ``y``."""
    if isinstance(dataset, InMemoryDataset) and dataset._indices is not None:
        dataset = dataset.copy()
    graphs = pack(dataset)
    if graphs.weight is not None:
        collect(dataset, "edge_weight")  # every graph has some, or none has
    nodes = graphs.ptr.diff()
    columns = [column for name in node if (column := _columns(dataset, name, nodes)) is not None]
    x = columns[0] if len(columns) == 1 else torch.cat(columns, dim=1) if columns else None
    edge_attr = _columns(dataset, "edge_attr", graphs.edge_ptr.diff())
    y, rows = collect(dataset, "y")
    if y is not None and y.shape[0] == graphs.num_nodes != graphs.num_graphs:
        _check_rows("y", rows, nodes)
    flat = FlatGraphs(graphs.ptr, graphs.edge_ptr, graphs.edge_index, x, edge_attr, torch.empty(0), graphs.weight)
    if DEGREE_PROFILE in node:
        flat = without_isolated(flat)
        flat = replace(flat, x=degree_profile(flat))
    return flat, y


def without_isolated(graphs: FlatGraphs) -> FlatGraphs:
    """The graphs without the nodes that no edge touches; targets stay as they are."""
    ends = graphs.ends()
    touched = torch.zeros(graphs.num_nodes, dtype=torch.bool)
    touched[ends] = True
    before = cumsum(touched.long())  # nodes kept before each
    ptr = before[graphs.ptr]
    edge_index = before[ends] - ptr[:-1].repeat_interleave(graphs.edge_ptr.diff())
    return replace(graphs, ptr=ptr, edge_index=edge_index, x=None if graphs.x is None else graphs.x[touched])


def degree_profile(graphs: FlatGraphs) -> Tensor:
    """Degree of every node, and minimum, maximum, mean and standard deviation of its neighbours' degrees: [N, 5].

    A neighbour is where an edge leads to; the degree counts the edges that leave. Nodes without neighbours get zeros.
    PyG's ``LocalDegreeProfile``, but for its deviation, which is taken from squares and loses digits at large degrees.
    """
    (source, destination), nodes = graphs.ends(), graphs.num_nodes
    own = degree(source, nodes, torch.get_default_dtype())
    around = own[destination]
    low, high, mean = (scatter(around, source, dim_size=nodes, reduce=how) for how in ("min", "max", "mean"))
    variance = scatter((around - mean[source]).square(), source, dim_size=nodes, reduce="mean")
    return torch.stack([own, low, high, mean, variance.sqrt()], dim=1)


def select(flat: FlatGraphs, graphs: Tensor, rows: str) -> FlatGraphs:
    """The graphs with these numbers, in this order; ``rows`` says what the rows of ``y`` are."""
    nodes, ptr = members(flat.ptr, graphs)
    edges, edge_ptr = members(flat.edge_ptr, graphs)
    if flat.pair_ptr is not None:
        pairs, pair_ptr = members(flat.pair_ptr, graphs)
        return flat._taken(ptr, edge_ptr, nodes, edges, pairs, pair_ptr)
    return flat._taken(ptr, edge_ptr, nodes, edges, nodes if rows == "node" else graphs)


def members(ptr: Tensor, graphs: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers of all nodes (or edges) of some graphs, and where each graph's begin."""
    counts = ptr.diff()[graphs]
    starts = cumsum(counts)
    return torch.arange(int(starts[-1])) + (ptr[graphs] - starts[:-1]).repeat_interleave(counts), starts


def collect(dataset: Graphs, name: str) -> tuple[Tensor | None, Tensor | None]:
    """One attribute of all graphs, end to end, and the rows of each, where known; None where no graph has it."""
    if isinstance(dataset, InMemoryDataset):
        value, cuts = dataset._data.get(name), (dataset.slices or {}).get(name)
        rows = None if cuts is None else torch.as_tensor(cuts).diff()
        return None if value is None else _tensor(value, name), rows
    values = [graph.get(name) for graph in dataset]
    missing = sum(value is None for value in values)
    if missing == len(values):
        return None, None
    if missing:
        fail(name, "given for every graph or for none", f"{missing} of {len(values)} graphs without")
    tensors = [_tensor(value, f"{name} of graph {number}") for number, value in enumerate(values)]
    return _joined(tensors, name), torch.tensor([tensor.shape[0] for tensor in tensors])


def _tensor(value: Any, name: str) -> Tensor:
    """A tensor with rows; plain numbers are one row, as for PyG's own collate."""
    if isinstance(value, (int, float)):
        return torch.tensor([value])
    if not isinstance(value, Tensor):
        fail(name, "a tensor or a number", type(value).__name__)
    return value.reshape(1) if value.dim() == 0 else value


def _joined(values: Sequence[Tensor], name: str) -> Tensor:
    """Rows of all graphs end to end, or an error that names the first graph whose rows do not fit."""
    try:
        return torch.cat(list(values))
    except RuntimeError:
        # Whatever torch joins is fine, such as [0] with [E, 3] or int with float; so torch is asked graph by graph.
        row = values[0][:1]
        for number, value in enumerate(values):
            try:
                row = torch.cat([row, value[:1]])[:1]
            except RuntimeError:
                widths = ", ".join(["*", *map(str, row.shape[1:])])
                wanted, got = (str(tensor.dtype).removeprefix("torch.") for tensor in (row, value))
                expected = f"{wanted} of shape [{widths}], as in the graphs before it"
                fail(f"{name} of graph {number}", expected, f"{got} of shape {list(value.shape)}")
        raise


def _columns(dataset: Graphs, name: str, counts: Tensor) -> Tensor | None:
    """An attribute as [rows, D], as many rows in every graph as it has nodes (or edges)."""
    values, rows = collect(dataset, name)
    if values is None:
        return None
    values = values.unsqueeze(1) if values.dim() == 1 else values
    check_shape(name, values, int(counts.sum()), None)
    _check_rows(name, rows, counts)
    return values


def _check_rows(name: str, rows: Tensor | None, counts: Tensor) -> None:
    """Fail where a graph has another number of rows than of nodes or edges, though all graphs together have not."""
    if rows is not None and rows.shape == counts.shape and not torch.equal(rows, counts):
        graph = int((rows != counts).nonzero()[0])
        fail(f"{name} of graph {graph}", f"{int(counts[graph])} rows", int(rows[graph]))
