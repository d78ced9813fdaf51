"""Spectra, random-walk encodings and degrees of many small graphs at once.

Graphs are grouped by size and solved in batched dense ``eigh`` calls in float64, on CPU or GPU; nothing here loops over
graphs. Sizes are rounded up to a multiple of `SIZE_STEP` by nodes without edges whose diagonal entry lies beyond the
spectrum: a block of its own, so that it cannot mix with the graph, and its eigenvalues come last. The step makes every
matrix of a batch start at a multiple of 64 bytes: LAPACK rounds differently at other addresses, and the spectrum of a
graph would depend on its neighbours in the dataset.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.spectra.dense_pairs import StackPairs, complete_pairs
from gssc.spectra.operators import Directed, build_operator, degrees, row_bounds, scaled, smallest_nodes, zero_mode_mass
from gssc.spectra.packed import PackedGraphs, single_thread
from gssc.spectra.random_walk import return_probabilities_dense, walk_matrix
from gssc.spectra.truncation import DENSE_ACCURACY, SpectrumSettings, cut

# Above this many nodes a sparse solver that looks for k pairs only is faster than all pairs by a dense one.
BATCHED_NODES = 512
SIZE_STEP = 4
# Numbers per dense chunk. On the CPU, smaller ones cost more calls, and larger ones leave the cache.
CPU_CHUNK, GPU_CHUNK = 1 << 19, 1 << 26


@dataclass(frozen=True)
class BatchedSpectra:
    """Flat results for G graphs of N nodes in all, on the CPU; rows of graphs that were not asked for are zero.

    ``eigvals [G, K]``, ``eigvecs [N, K]``, ``eigmask [G, K]``, ``rwse [N, steps]`` and ``degree [N]`` in the dtype
    asked for (K = 0 or steps = 0 where not asked for); ``available``, ``residual``, ``orthogonality``, ``gap``,
    ``turn`` and ``tolerance`` [G] in float64 as in `Certificate`.
    """

    eigvals: Tensor
    eigvecs: Tensor
    eigmask: Tensor
    rwse: Tensor
    degree: Tensor
    available: Tensor
    residual: Tensor
    orthogonality: Tensor
    gap: Tensor
    turn: Tensor
    tolerance: Tensor


def empty_spectra(graphs: PackedGraphs, k: int, steps: int, dtype: torch.dtype) -> BatchedSpectra:
    """Zeros everywhere, and an infinite gap: nothing was dropped."""
    number, nodes = graphs.num_graphs, graphs.num_nodes

    def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        # As torch.zeros, but the system clears each page when it is first written, by the worker that does so.
        return torch.from_numpy(np.zeros(shape, f"i{dtype.itemsize}")).view(dtype)

    residual, orthogonality, gap, turn, tolerance = (zeros(number, dtype=torch.float64) for _ in range(5))
    spectra = (zeros(number, k), zeros(nodes, k), zeros(number, k, dtype=torch.bool))
    walks, available = (zeros(nodes, steps), zeros(nodes)), zeros(number, dtype=torch.long)
    return BatchedSpectra(*spectra, *walks, available, residual, orthogonality, gap.fill_(torch.inf), turn, tolerance)


def solve_batched(
    graphs: PackedGraphs,
    spectrum: SpectrumSettings | None,
    steps: int = 0,
    *,
    directed: Directed = "symmetrize",
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float64,
    only: Tensor | None = None,
    done: Callable[[int], None] | None = None,
) -> BatchedSpectra:
    """Solve all graphs, or those of the mask ``only [G]``; ``done`` hears after each chunk how many it held."""
    device = torch.device(device)
    out = empty_spectra(graphs, spectrum.k if spectrum else 0, steps, dtype)

    def solve(chunk: tuple[Tensor, int]) -> int:
        graph, size = chunk
        count = graphs.ptr[graph + 1] - graphs.ptr[graph]
        adjacency = graphs.adjacency(graph, size, directed)
        # Where the nodes of the chunk lie in the padded rows [B m], and in the result.
        column = torch.arange(size)
        is_node = column < count.unsqueeze(1)
        slot = is_node.view(-1).nonzero().view(-1)
        row = (graphs.ptr[graph].unsqueeze(1) + column).view(-1).index_select(0, slot)

        def write(target: Tensor, padded: Tensor) -> None:
            rows = padded.to(target.dtype).reshape(-1, *target.shape[1:]).cpu()
            target.index_copy_(0, row, rows.index_select(0, slot))

        degree = torch.from_numpy(degrees(adjacency)).view(-1, size)
        write(out.degree, degree)
        if steps:
            walk = _dense(walk_matrix(adjacency, graph), size, dtype, device)
            write(out.rwse, return_probabilities_dense(walk, steps))
        if spectrum is not None:
            operator = spectrum.operator
            adjacency, exponent = scaled(adjacency, operator, graph.numel())
            less = 1.0 if spectrum.which == "both" else 0.0
            matrix = _dense(build_operator(adjacency, operator, graph, less), size, torch.float64, device)
            mass = label = None
            if not spectrum.by_magnitude:
                mass = zero_mode_mass(degree, operator).to(device)
                label = _component_numbers(adjacency, is_node).to(device)
            bound = torch.from_numpy(row_bounds(adjacency, operator)).view(-1, size).amax(1).to(device)
            pairs = complete_pairs(matrix, bound, count.to(device), mass, label, graph)
            zeros = torch.zeros_like(count) if label is None else label.amax(1) + 1
            numbers = count.to(device), zeros.to(device)
            write(out.eigvecs, _select(pairs, *numbers, graph, exponent, spectrum, out))
        return graph.numel()

    # LAPACK and small products use one core each, so that chunks run side by side, each with a single thread: its
    # rounding then does not depend on how many there are.
    with single_thread() as threads:
        chunks = chunks_of_one_size(graphs, only, CPU_CHUNK if device.type == "cpu" else GPU_CHUNK)
        workers = max(1, min(threads, len(chunks))) if device.type == "cpu" else 1
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for finished in pool.map(solve, chunks):
                if done is not None:
                    done(finished)
    return out


def chunks_of_one_size(graphs: PackedGraphs, only: Tensor | None, budget: int) -> list[tuple[Tensor, int]]:
    """Numbers of graphs of one padded size, and that size, within the ``budget`` of a chunk; the most work first.

    The workers then finish at about the same time: what is left for the end is small.
    """
    count = graphs.ptr.diff()
    padded = (count + SIZE_STEP - 1) // SIZE_STEP * SIZE_STEP
    padded = padded if only is None else padded * only
    chunks = []
    for size in padded[padded > 0].unique().tolist():
        numbers = (padded == size).nonzero().view(-1)
        chunks += [(chunk, size) for chunk in numbers.split(max(1, budget // size**2))]
    return sorted(chunks, key=lambda chunk: -chunk[0].numel() * chunk[1] ** 3)


def _dense(matrix: sp.csr_array, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The diagonal blocks [B, m, m] of a matrix [B m, B m] that has no other entries, on the device."""
    row = np.arange(matrix.shape[0])
    start = size * (row - row // size)  # of the row in the stack, less the first node of its graph
    place = torch.from_numpy(np.repeat(start, np.diff(matrix.indptr)) + matrix.indices).to(device)
    out = torch.zeros(matrix.shape[0] * size, dtype=dtype, device=device)
    return out.index_copy_(0, place, torch.from_numpy(matrix.data).to(out)).view(-1, size, size)


def _select(
    pairs: StackPairs,
    count: Tensor,
    zeros: Tensor,
    graph: Tensor,
    exponent: np.ndarray,
    spectrum: SpectrumSettings,
    out: BatchedSpectra,
) -> Tensor:
    """Write eigenvalues, times 2^``exponent``, and certificate of a chunk; return its eigenvectors [B, m, K]."""
    errors = (DENSE_ACCURACY * pairs.norm).unsqueeze(1).expand_as(pairs.values)
    tolerance, _, chosen = cut(pairs.values, errors, count, spectrum, zeros, pairs.norm)
    errors = pairs.error.gather(1, pairs.place)
    written = {"eigmask": chosen.mask, "available": chosen.available, "orthogonality": pairs.orthogonality}
    exact = torch.arange(errors.shape[1], device=errors.device) < zeros.unsqueeze(1)
    written["turn"] = chosen.turn(errors.masked_fill(exact, 0.0))
    scales = {"residual": chosen.residual(pairs.values, errors), "gap": chosen.gap, "tolerance": tolerance}
    for name, value in (scales | {"eigvals": spectrum.moved_back(chosen.values, chosen.mask, tolerance)}).items():
        array = value.cpu().numpy()
        written[name] = torch.from_numpy(np.ldexp(array, exponent.reshape(-1, *[1] * (array.ndim - 1))))
    for name, value in written.items():
        target: Tensor = getattr(out, name)
        target[graph] = value.cpu().to(target.dtype)
    return pairs.vectors(chosen.index).mul_(chosen.mask.unsqueeze(2)).to(out.eigvecs.dtype).mT


def _component_numbers(adjacency: sp.csr_array, is_node: Tensor) -> Tensor:
    """The component of each node, numbered within its graph by first node, [B, m]; -1 where ``is_node`` is False."""
    first_node = torch.from_numpy(smallest_nodes(adjacency))
    # Counted along the graph, first nodes number the components.
    number = (first_node == torch.arange(first_node.numel())).view(is_node.shape).cumsum(1) - 1
    return torch.where(is_node, number.view(-1)[first_node].view(is_node.shape), -1)
