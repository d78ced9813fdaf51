"""Spectra, random-walk encodings and degrees of many small graphs at once.

Graphs are grouped by size and solved in batched dense ``eigh`` calls in float64, on CPU or GPU; nothing here loops over
graphs. Sizes are rounded up to a multiple of `SIZE_STEP` by nodes without edges whose diagonal entry lies beyond the
spectrum: a block of its own, so that it cannot mix with the graph, and its eigenvalues come last. The step makes every
matrix of a batch start at a multiple of 64 bytes: LAPACK rounds differently at other addresses, and the spectrum of a
graph would depend on its neighbours in the dataset.
"""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from gssc.spectra.batched_operators import (
    check_nonnegative_batched,
    operator_batched,
    return_probabilities_batched,
    symmetric_batched,
    zero_modes_batched,
)
from gssc.spectra.batched_truncation import gather_rows, select_batched
from gssc.spectra.certificate import SpectrumError
from gssc.spectra.operators import Directed, Operator
from gssc.spectra.packed import PackedGraphs, single_thread
from gssc.spectra.solve import CLUSTER_TOLERANCE
from gssc.spectra.truncation import Truncation, ZeroModes

# Above this many nodes a sparse solver that looks for k pairs only is faster than all pairs by a dense one.
BATCHED_NODES = 512
SIZE_STEP = 4
# Numbers per dense chunk: on the CPU a chunk and its powers should stay in the cache.
CPU_CHUNK, GPU_CHUNK = 1 << 18, 1 << 26
# What a backward stable solver always reaches; more means that it failed.
MAX_RELATIVE_RESIDUAL = MAX_ORTHOGONALITY = 1e-10
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class SpectrumSettings:
    """What to compute of the operator; the arguments of `LaplacianSpectrum`."""

    k: int
    operator: Operator = "sym"
    zero_modes: ZeroModes = "keep"
    truncation: Truncation = "eigenspace"


@dataclass(frozen=True)
class BatchedSpectra:
    """Flat results for G graphs of N nodes in all, on the CPU; rows of graphs that were not asked for are zero.

    ``eigvals [G, K]``, ``eigvecs [N, K]``, ``eigmask [G, K]``, ``rwse [N, steps]`` and ``degree [N]`` in the dtype
    asked for (K = 0 or steps = 0 where not asked for); ``available``, ``residual``, ``orthogonality``, ``gap`` and
    ``tolerance`` [G] in float64 as in `Certificate`.
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
    tolerance: Tensor


def empty_spectra(graphs: PackedGraphs, k: int, steps: int, dtype: torch.dtype) -> BatchedSpectra:
    """Zeros everywhere, and an infinite gap: nothing was dropped."""
    number, nodes = graphs.num_graphs, graphs.num_nodes
    certificate = [torch.zeros(number, dtype=torch.float64) for _ in range(4)]
    certificate[2].fill_(torch.inf)
    return BatchedSpectra(
        torch.zeros(number, k, dtype=dtype),
        torch.zeros(nodes, k, dtype=dtype),
        torch.zeros(number, k, dtype=torch.bool),
        torch.zeros(nodes, steps, dtype=dtype),
        torch.zeros(nodes, dtype=dtype),
        torch.zeros(number, dtype=torch.long),
        *certificate,
    )


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
    # LAPACK and small products use one core each, so that chunks run side by side, each with a single thread: its
    # rounding then does not depend on how many there are.
    with single_thread() as threads:
        work = _Work(graphs, spectrum, steps, directed, device, out, only)
        spans = work.spans()
        workers = min(threads, len(spans)) if device.type == "cpu" else 1

        def run(span: tuple[int, int]) -> int:
            work.solve(*span)
            return span[1] - span[0]

        with ThreadPoolExecutor(max(workers, 1), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for finished in pool.map(run, spans):
                if done is not None:
                    done(finished)
    return out


class _Work:
    """One call of `solve_batched`: graphs in order of their padded size, and where everything of each lies."""

    def __init__(
        self,
        graphs: PackedGraphs,
        spectrum: SpectrumSettings | None,
        steps: int,
        directed: Directed,
        device: torch.device,
        out: BatchedSpectra,
        only: Tensor | None,
    ) -> None:
        self.spectrum, self.steps, self.directed, self.device, self.out = spectrum, steps, directed, device, out
        self.laplacian = spectrum is not None and spectrum.operator != "adjacency"
        count = graphs.ptr.diff()
        padded = (count + SIZE_STEP - 1) // SIZE_STEP * SIZE_STEP
        wanted = (count > 0) if only is None else (count > 0) & only
        order = torch.argsort(padded, stable=True)
        self.graph = order[wanted[order]]
        self.count, self.size = count[self.graph], padded[self.graph]
        self.node, self.node_start = _ranges(graphs.ptr[self.graph], self.count)
        edges = graphs.edge_ptr.diff()[self.graph]
        edge, self.edge_start = _ranges(graphs.edge_ptr[self.graph], edges)
        self.local = torch.arange(self.node.numel()) - self.node_start[:-1].repeat_interleave(self.count)
        self.source, self.target = graphs.edge_index[:, edge]
        self.weight = None if graphs.weight is None else graphs.weight[edge]
        self.edges = edges
        self.component = self._components() if self.laplacian else None

    def _components(self) -> Tensor:
        """Component of each node, numbered within its graph, for all graphs at once, [nodes]."""
        shift = self.node_start[:-1].repeat_interleave(self.edges)
        source, target = (self.source + shift).numpy(), (self.target + shift).numpy()
        weight = np.ones(source.size) if self.weight is None else self.weight.numpy()
        nodes = self.node.numel()
        matrix = sp.coo_array((weight, (source, target)), shape=(nodes, nodes)).tocsr()
        matrix.eliminate_zeros()
        _, label = connected_components(matrix, directed=False)
        # Components are numbered by their first node, so those of one graph are consecutive.
        labels = torch.from_numpy(label).long()
        return labels - labels[self.node_start[:-1]].repeat_interleave(self.count)

    def spans(self) -> list[tuple[int, int]]:
        """Chunks [first, last) of graphs of one padded size, within the memory of a chunk."""
        budget = CPU_CHUNK if self.device.type == "cpu" else GPU_CHUNK
        out: list[tuple[int, int]] = []
        start = 0
        sizes, numbers = torch.unique_consecutive(self.size, return_counts=True)
        for size, number in zip(sizes.tolist(), numbers.tolist(), strict=True):
            step = max(1, budget // (size * size))
            out += [(at, min(at + step, start + number)) for at in range(start, start + number, step)]
            start += number
        return out

    def solve(self, first: int, last: int) -> None:
        """Everything for the chunk of graphs [first, last), written to its rows of the result."""
        graph, size, batch = self.graph[first:last], int(self.size[first]), last - first
        nodes = slice(int(self.node_start[first]), int(self.node_start[last]))
        edges = slice(int(self.edge_start[first]), int(self.edge_start[last]))
        number = torch.arange(batch)
        count = self.count[first:last]
        slot = number.repeat_interleave(count) * size + self.local[nodes]
        owner = number.repeat_interleave(self.edges[first:last])
        position = (owner * size + self.source[edges]) * size + self.target[edges]
        adjacency = torch.zeros(batch * size * size, dtype=torch.float64, device=self.device)
        one = torch.ones((), dtype=torch.float64) if self.weight is None else self.weight[edges]
        adjacency.index_put_((position.to(self.device),), one.to(self.device), accumulate=True)
        adjacency = symmetric_batched(adjacency.view(batch, size, size), self.directed, graph)
        if self.laplacian or self.steps:
            name = self.spectrum.operator if self.spectrum and self.laplacian else "random walk"
            check_nonnegative_batched(adjacency, graph, name)
        degree = adjacency.sum(2)
        row = self.node[nodes]
        self.out.degree[row] = degree.reshape(-1).cpu()[slot].to(self.out.degree.dtype)
        if self.steps:
            walk = return_probabilities_batched(adjacency, degree, self.steps, self.out.rwse.dtype)
            self.out.rwse[row] = walk.view(-1, self.steps).cpu()[slot]
        if self.spectrum is not None:
            label = None
            if self.component is not None:
                label = torch.full((batch * size,), -1).index_copy_(0, slot, self.component[nodes])
                label = label.view(batch, size).to(self.device)
            vectors = self._spectra(adjacency, degree, count.to(self.device), label, graph)
            self.out.eigvecs[row] = vectors.reshape(-1, self.spectrum.k).cpu()[slot].to(self.out.eigvecs.dtype)

    def _spectra(self, adjacency: Tensor, degree: Tensor, count: Tensor, label: Tensor | None, graph: Tensor) -> Tensor:
        """Write the eigenvalues and the certificate of a chunk; return its eigenvectors [B, m, K]."""
        spectrum, out = self.spectrum, self.out
        assert spectrum is not None
        matrix = operator_batched(adjacency, degree, spectrum.operator)
        size = matrix.shape[1]
        column = torch.arange(size, device=matrix.device)
        valid = column < count.unsqueeze(1)
        # Row sums of |L| bound the spectrum; those of a Laplacian are at most twice its diagonal.
        rows = adjacency.abs().sum(2) if self.component is None else torch.diagonal(matrix, dim1=1, dim2=2)
        beyond = 3.0 * rows.amax(1)
        beyond = torch.where(beyond > 0, beyond, 1.0)
        torch.diagonal(matrix, dim1=1, dim2=2).add_(torch.where(valid, 0.0, beyond.unsqueeze(1)))
        zeros, known = torch.zeros_like(count), None
        if label is not None:
            zeros, known = label.amax(1) + 1, zero_modes_batched(label, degree, spectrum.operator)
            # Zero modes are known: moved beyond the spectrum too, they cannot mix with small eigenvalues.
            matrix.baddbmm_(known.mT * beyond.view(-1, 1, 1), known)
        values, vectors = _eigh(matrix, graph)
        rows = vectors.mT
        solved = column < (count - zeros).unsqueeze(1)
        residual = torch.baddbmm(rows * values.unsqueeze(2), rows, matrix, beta=-1).norm(dim=2)
        norm = torch.where(solved, values.abs(), 0.0).amax(1)
        accuracy = torch.maximum(torch.where(solved, residual, 0.0).amax(1), EPS * norm)
        defect = torch.baddbmm(torch.eye(size, dtype=rows.dtype, device=rows.device), rows, vectors, beta=-1)
        defect = torch.maximum(defect.amax((1, 2)), -defect.amin((1, 2)))
        failed = ~((residual.amax(1) <= MAX_RELATIVE_RESIDUAL * beyond) & (defect <= MAX_ORTHOGONALITY))
        if bool(failed.any()):
            at = int(failed.nonzero()[0])
            raise SpectrumError(
                f"graph {int(graph[at])} of {int(count[at])} nodes: the dense solver left a residual of "
                f"{float(residual[at].max()):.1e} at norm {float(norm[at]):.1e}, orthogonality {float(defect[at]):.1e}"
            )
        if known is not None:
            place = (column - zeros.unsqueeze(1)).clamp(min=0)
            values = torch.where(column < zeros.unsqueeze(1), 0.0, values.gather(1, place))
        tolerance = CLUSTER_TOLERANCE * accuracy
        chosen = select_batched(
            values,
            count,
            spectrum.k,
            tolerance=tolerance,
            by_magnitude=spectrum.operator == "adjacency",
            zero_modes=spectrum.zero_modes,
            truncation=spectrum.truncation,
        )
        kept = gather_rows(rows, chosen.index - zeros.unsqueeze(1), chosen.mask)
        if known is not None and spectrum.zero_modes == "keep":
            width = min(known.shape[1], spectrum.k)
            exact = column[:width] < zeros.unsqueeze(1)
            kept[:, :width] = torch.where(
                exact.unsqueeze(2), known[:, :width] * chosen.mask[:, :width].unsqueeze(2), kept[:, :width]
            )
        # The shifted operator differs from the operator on the zero modes only, and there by ``beyond``.
        shifted = chosen.values
        if known is not None:
            is_zero = (chosen.values == 0.0) & (chosen.index < zeros.unsqueeze(1))
            shifted = torch.where(is_zero, beyond.unsqueeze(1), shifted)
        final = torch.baddbmm(kept * shifted.unsqueeze(2), kept, matrix, beta=-1).norm(dim=2).amax(1)
        gram = torch.baddbmm(torch.diag_embed(chosen.mask.to(kept.dtype)), kept, kept.mT, beta=-1)
        orthogonality = gram.abs().amax((1, 2))
        for name, value in (
            ("eigvals", chosen.values),
            ("eigmask", chosen.mask),
            ("available", chosen.available),
            ("residual", final),
            ("orthogonality", orthogonality),
            ("gap", chosen.gap),
            ("tolerance", tolerance),
        ):
            target: Tensor = getattr(out, name)
            target[graph] = value.cpu().to(target.dtype)
        return kept.mT


def _ranges(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """start[i], …, start[i] + length[i] - 1 for all i end to end, and where each range begins in the result."""
    begin = torch.cat([torch.zeros(1, dtype=torch.long), length.cumsum(0)])
    shift = (start - begin[:-1]).repeat_interleave(length)
    return torch.arange(int(begin[-1])) + shift, begin


def _eigh(matrix: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except RuntimeError as error:  # torch.linalg.LinAlgError is one; out of memory must pass
        if "converge" not in str(error):
            raise
        at = re.search(r"Batch element (\d+)", str(error))
        which = f"graph {int(graph[int(at[1])])}" if at else f"one of graphs {graph.tolist()}"
        raise SpectrumError(f"{which}: the dense solver did not converge ({error})") from error
    return values, vectors
