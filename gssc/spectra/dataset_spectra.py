"""A whole dataset at once: spectra, random-walk encodings and degrees, from the cache or computed into it."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset

from gssc.checks import check_device, fail
from gssc.spectra.attached import SIZE, size_text
from gssc.spectra.batched import BATCHED_NODES, BatchedSpectra, empty_spectra, solve_batched
from gssc.spectra.cache import CacheArgument, check_stored, content_key, narrowed, open_cache
from gssc.spectra.certificate import Certificate, read_certificate
from gssc.spectra.expander import ExpanderGraph
from gssc.spectra.operators import Directed, degrees
from gssc.spectra.packed import PackedGraphs, pack, single_thread
from gssc.spectra.random_walk import return_probabilities
from gssc.spectra.transforms import LaplacianSpectrum, RandomWalkSE, warn_empty

Dataset = TypeVar("Dataset", bound=InMemoryDataset | Sequence[Data])


@dataclass(frozen=True)
class PreparedSpectra:
    """Flat results for a dataset, where each graph's nodes and edges begin, [G + 1], and certificates on request."""

    flat: BatchedSpectra
    ptr: Tensor
    edge_ptr: Tensor
    by_graph: dict[int, Certificate]

    def attributes(self) -> dict[str, Tensor]:
        """Spectra and encodings, as far as they were asked for, by the names that graphs have them under."""
        found = {name: getattr(self.flat, name) for name in ("eigvals", "eigvecs", "eigmask", "rwse")}
        return {name: tensor for name, tensor in found.items() if tensor.shape[1]}

    def certificate(self, graph: int) -> Certificate:
        """How good the spectrum of one graph is; graphs of the batched path have a complete, hence proved solve."""
        if graph in self.by_graph:
            return self.by_graph[graph]
        names = ("residual", "orthogonality", "gap", "turn", "tolerance")
        measured = {name: float(getattr(self.flat, name)[graph]) for name in names}
        return Certificate(solver="batched", level="proved", miss_probability=0.0, **measured)


def prepare(
    dataset: Dataset,
    spectrum: LaplacianSpectrum | None = None,
    rwse: RandomWalkSE | None = None,
    *,
    expander: ExpanderGraph | None = None,
    device: str | torch.device | None = None,
    cache: CacheArgument = None,
    progress: bool = True,
) -> Dataset:
    """A copy of ``dataset`` whose graphs carry what the transforms would attach, and ``degree [N]``.

    The same as applying ``spectrum`` and ``rwse`` to every graph, but for all graphs at once. An InMemoryDataset gives
    one of its own class, collated; a list of ``Data`` gives a list. The input is not changed, and nothing is copied
    but what is new. One `EmptySpectrumWarning` counts the graphs that keep no eigenpair.

    Args:
        dataset: A PyG InMemoryDataset or a list of ``Data``.
        spectrum: What to attach as ``eigvals``, ``eigvecs`` and ``eigmask``; None for no spectra.
        rwse: What to attach as ``rwse``; None for none.
        expander: What to attach as ``expander``, made anew rather than read from the cache; None for none.
        device: Where to solve; None for the device of ``spectrum``.
        cache: As for `LaplacianSpectrum`, whose own is used where this is None; one file for the whole dataset.
        progress: Show a progress bar.
    """
    if isinstance(dataset, Data) or not hasattr(dataset, "__getitem__"):  # any Dataset of PyG or PyTorch will do
        fail("dataset", "an InMemoryDataset or a list of Data", type(dataset).__name__)
    if isinstance(dataset, InMemoryDataset) and dataset._indices is not None:
        dataset = dataset.copy()  # a subset gets storage of its own
    if expander is not None:
        ptr = pack(dataset).ptr
        dataset = _attach(dataset, {"expander": expander.rows(ptr.diff())}, {"expander": ptr})
        if spectrum is None and rwse is None:
            return dataset
    solved = prepare_spectra(dataset, spectrum, rwse, device=device, cache=cache, progress=progress)
    flat = solved.flat
    new: dict[str, Any] = {"degree": flat.degree, **solved.attributes()}
    if spectrum is not None:
        new[SIZE] = [*map(size_text, solved.ptr.diff().tolist(), solved.edge_ptr.diff().tolist())]
        empty = int(((flat.available > 0) & ~flat.eigmask.any(1)).sum())
        if empty:
            warn_empty(empty, spectrum.k, stacklevel=3)
    per_graph = torch.arange(solved.ptr.numel())
    slices = {name: per_graph if name in ("eigvals", "eigmask", SIZE) else solved.ptr for name in new}
    return _attach(dataset, new, slices)


def prepare_spectra(
    dataset: InMemoryDataset | Sequence[Data] | PackedGraphs,
    spectrum: LaplacianSpectrum | None = None,
    rwse: RandomWalkSE | None = None,
    *,
    device: str | torch.device | None = None,
    cache: CacheArgument = None,
    progress: bool = False,
) -> PreparedSpectra:
    """What `prepare` attaches, as flat tensors with the certificate of every graph."""
    reader = spectrum or rwse
    if reader is None:
        fail("spectrum, rwse", "a LaplacianSpectrum, a RandomWalkSE or both", "None")
    for name, transform, kind in (("spectrum", spectrum, LaplacianSpectrum), ("rwse", rwse, RandomWalkSE)):
        if transform is not None and not isinstance(transform, kind):
            fail(name, f"a {kind.__name__}", type(transform).__name__)
    if spectrum is not None:
        device = spectrum.device if device is None else device
        cache = spectrum.cache if cache is None else cache
    device = check_device("device", "cpu" if device is None else device)
    # Where both read the graphs alike, spectra and walks come from one adjacency matrix.
    if spectrum and rwse and (spectrum.directed, spectrum.weight_attr) != (rwse.directed, rwse.weight_attr):
        solved = prepare_spectra(dataset, spectrum, device=device, cache=cache, progress=progress)
        walks = prepare_spectra(dataset, rwse=rwse, device=device, cache=cache, progress=progress)
        return replace(solved, flat=replace(solved.flat, rwse=walks.flat.rwse))
    with single_thread():
        graphs = pack(dataset, reader.weight_attr)
    steps = 0 if rwse is None else rwse.steps
    folder = open_cache(cache)
    key = ""
    if folder is not None:
        indices = {"edge_index": graphs.edge_index, "ptr": graphs.ptr, "edge_ptr": graphs.edge_ptr}
        content = {f"0.{name}": narrowed(tensor) for name, tensor in indices.items()} | {"0.weight": graphs.weight}
        settings = spectrum and {**vars(spectrum.wanted), "solver": spectrum.solver}
        part = {"spectrum": settings, "steps": steps, "directed": reader.directed, "batched_nodes": BATCHED_NODES}
        about = {"entry": "dataset", "parts": [part], "device": str(device), "dtype": str(torch.get_default_dtype())}
        key = content_key(content, about)
        like = vars(empty_spectra(graphs, spectrum.k if spectrum else 0, steps, torch.get_default_dtype()))

        def stored(tensors: dict[str, Tensor], about: dict[str, Any]) -> PreparedSpectra:
            check_stored(tensors, like, tensors["eigvecs"], graphs.ptr.diff())
            certificates = {int(g): read_certificate(c) for g, c in about["certificates"].items()}
            return PreparedSpectra(BatchedSpectra(**tensors), graphs.ptr, graphs.edge_ptr, certificates)

        entry: PreparedSpectra | None = folder.load(key, stored)
        if entry is not None:
            return entry
    with Progress(console=Console(quiet=not progress), disable=not progress) as bar:
        done = partial(bar.advance, bar.add_task("spectra", total=graphs.num_graphs))
        solved = _solve(graphs, spectrum, steps, reader.directed, device, done)
    if folder is not None:
        folder.store(key, vars(solved.flat), {"certificates": {g: vars(c) for g, c in solved.by_graph.items()}})
    return solved


def _solve(
    graphs: PackedGraphs,
    spectrum: LaplacianSpectrum | None,
    steps: int,
    directed: Directed,
    device: torch.device,
    done: Callable[[int], None],
) -> PreparedSpectra:
    """Small graphs together, the others, and all where another solver is forced, one by one."""
    batched = spectrum is None or spectrum.solver in ("auto", "dense")
    small = (graphs.ptr.diff() <= BATCHED_NODES) & batched
    wanted, dtype = spectrum and spectrum.wanted, torch.get_default_dtype()
    flat = solve_batched(graphs, wanted, steps, directed=directed, device=device, dtype=dtype, only=small, done=done)
    certificates: dict[int, Certificate] = {}
    # Too many components for k, see `gssc.spectra.zero_modes`: solved again, one by one.
    crowded = (flat.available > 0) & ~flat.eigmask.any(1) if wanted and wanted.keeps_zeros_whole else ~small
    for graph in (~small | crowded).nonzero().view(-1).tolist():
        rows = slice(int(graphs.ptr[graph]), int(graphs.ptr[graph + 1]))
        adjacency = graphs.adjacency(torch.tensor([graph]), rows.stop - rows.start, directed)
        flat.degree[rows] = torch.from_numpy(degrees(adjacency))
        if steps:
            flat.rwse[rows] = torch.from_numpy(return_probabilities(adjacency, steps))
        if spectrum is not None:
            result = replace(spectrum, device=str(device)).solve(adjacency)
            flat.eigvals[graph] = torch.from_numpy(result.values)
            flat.eigvecs[rows] = torch.from_numpy(result.vectors)
            flat.eigmask[graph] = torch.from_numpy(result.mask)
            flat.available[graph] = result.available
            certificates[graph] = result.certificate
        done(int(not small[graph]))
    return PreparedSpectra(flat, graphs.ptr, graphs.edge_ptr, certificates)


def _attach(dataset: Any, new: dict[str, Any], slices: dict[str, Tensor]) -> Any:
    """A shallow copy of the dataset with more attributes; ``slices`` says where each graph's rows begin."""
    if isinstance(dataset, InMemoryDataset):
        out = copy.copy(dataset)
        out._data, out._data_list = copy.copy(dataset._data), None
        # One graph alone has no slices.
        out.slices = None if dataset.slices is None else {**dataset.slices, **slices}
        for name, tensor in new.items():
            out._data[name] = tensor
        return out
    graphs = [copy.copy(graph) for graph in dataset]
    for name, values in new.items():
        of_graphs = values.split(slices[name].diff().tolist()) if isinstance(values, Tensor) else values
        for graph, rows in zip(graphs, of_graphs, strict=True):
            graph[name] = rows
    return graphs
