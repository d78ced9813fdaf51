"""Connected components of one graph: how the operator falls apart, and all pairs of small components at once.

A spectrum is solved per component and merged: iterative solvers see one zero mode, which is known, and eigenvalues
that repeat in many equal components are no longer degenerate. Components of equal size are stacked and go through one
batched dense solve.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from gssc.spectra.certificate import Pairs
from gssc.spectra.operators import Operator, degrees

# Numbers of one stack of dense matrices: 32 MB in float64.
STACK_LIMIT = 2**22


@dataclass(frozen=True)
class Part:
    """Eigenpairs of b components of s nodes each.

    nodes [b, s] are the components' nodes, values [b, m] ascend, errors [b, m] bound ‖L p - λ p‖. The vectors [b, s, m]
    come in pieces along m, which are never joined: they are the largest arrays there are. Pieces may be tensors that
    were left on their device.
    """

    nodes: np.ndarray
    values: np.ndarray
    vectors: list[Any]
    errors: np.ndarray
    orthogonality: float

    @property
    def device(self) -> torch.device | None:
        """Where the vectors were left, None where some are on the host."""
        left = all(isinstance(piece, Tensor) for piece in self.vectors)
        return self.vectors[0].device if left else None

    def on_host(self) -> "Part":
        """The same with all vectors on the host."""
        pieces = [piece.cpu().numpy() if isinstance(piece, Tensor) else piece for piece in self.vectors]
        return replace(self, vectors=pieces)

    def write(self, member: int, pairs: np.ndarray, out: Any, columns: np.ndarray) -> None:
        """Copy the vectors of these pairs of one component to these columns of out [n, k], an array or a tensor.

        A tensor takes pieces that lie on its device, and only those of a connected graph.
        """
        nodes = self.nodes[member]
        begin = 0
        for piece in self.vectors:
            inside = (pairs >= begin) & (pairs < begin + piece.shape[2])
            source, target = pairs[inside] - begin, columns[inside]
            begin += piece.shape[2]
            if not source.size:
                continue
            if nodes.size == out.shape[0] and (np.diff(source) == 1).all() and (np.diff(target) == 1).all():
                # The whole graph and neighbouring columns: rows are copied as they lie in memory.
                out[:, target[0] : target[-1] + 1] = piece[member][:, source[0] : source[-1] + 1]
            elif isinstance(out, Tensor):
                out[:, torch.as_tensor(target)] = piece[member][:, torch.as_tensor(source)]
            else:
                out[nodes[:, None], target[None, :]] = piece[member][:, source]


@dataclass(frozen=True)
class Components:
    """Nodes [n] sorted by (component size, component), and where each component starts and how many nodes it has."""

    nodes: np.ndarray
    start: np.ndarray
    size: np.ndarray

    def members(self, component: int) -> np.ndarray:
        """The nodes of one component."""
        return self.nodes[self.start[component] : self.start[component] + self.size[component]]


def find_components(adjacency: sp.csr_array, smallest_node: np.ndarray | None = None) -> Components:
    """The connected components of a symmetric adjacency matrix, smallest first.

    ``smallest_node`` [n] may give them: for every node the smallest node of its component.
    """
    n = adjacency.shape[0]
    if n == 0:
        return Components(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    # In a symmetric matrix strong components are the components, found without a transpose.
    if smallest_node is None:
        count, label = connected_components(adjacency, directed=True, connection="strong")
    else:
        number = np.cumsum(smallest_node == np.arange(n)) - 1
        count, label = int(number[-1]) + 1, number[smallest_node]
    if count == 1:
        return Components(np.arange(n), np.zeros(1, dtype=np.int64), np.array([n]))
    size = np.bincount(label, minlength=count)
    rank = np.empty(count, dtype=np.int64)
    by_size = np.argsort(size, kind="stable")
    rank[by_size] = np.arange(count)
    size = size[by_size]
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    return Components(np.argsort(rank[label], kind="stable"), start, size)


def kernel_vector(adjacency: sp.csr_array, operator: Operator, parts: Components) -> np.ndarray | None:
    """The zero modes of a Laplacian folded into one vector [n]: on each component, its normalised mode.

    Constant for D - A, proportional to sqrt(degree) for the normalised operator; None for the adjacency matrix.
    """
    if operator == "adjacency":
        return None
    mass = np.ones(adjacency.shape[0])
    if operator == "sym":
        degree = degrees(adjacency)
        mass = np.where(degree > 0, degree, 1.0)
    ordered = mass[parts.nodes]
    total = np.repeat(np.add.reduceat(ordered, parts.start), parts.size) if parts.size.size else ordered
    out = np.empty_like(mass)
    out[parts.nodes] = np.sqrt(ordered / total)
    return out


def dense_batch(stack: np.ndarray, kernel: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All eigenpairs of matrices [b, s, s]: values [b, s] ascending, vectors [b, s, s], and accuracies [b].

    A known zero mode ``kernel`` [b, s] is moved to the top of the spectrum before the solve, so that even eigenvalues
    that rounding cannot tell from zero get vectors orthogonal to it, and takes the first place after it, exactly.
    """
    norm = np.abs(stack).sum(axis=2).max(axis=1)
    if kernel is None:
        values, vectors = np.linalg.eigh(stack)
    else:
        lifted = stack + (2.0 * norm)[:, None, None] * (kernel[:, :, None] * kernel[:, None, :])
        values, vectors = np.linalg.eigh(lifted)
        values = np.concatenate([np.zeros_like(values[:, :1]), values[:, :-1]], axis=1)
        vectors = np.concatenate([kernel[:, :, None], vectors[:, :, :-1]], axis=2)
    residual = np.linalg.norm(stack @ vectors - vectors * values[:, None, :], axis=1)
    # A residual can be zero by luck: no eigenvalue is better known than to machine precision times the norm.
    return values, vectors, np.maximum(residual.max(axis=1), np.finfo(np.float64).eps * norm)


def small_parts(
    matrix: sp.csr_array, parts: Components, kernel: np.ndarray | None, limit: int, count: int
) -> Iterator[Part]:
    """Parts of the components of at most ``limit`` nodes, ``count`` pairs at each end that matters.

    The low end of Laplacians, zero mode included; both ends of the adjacency matrix (``kernel`` None).
    """
    number = int(np.searchsorted(parts.size, limit, side="right"))
    total = int(parts.size[:number].sum())
    if number == 0:
        return
    nodes = parts.nodes[:total]
    blocks = matrix[nodes][:, nodes].tocsr() if number < parts.size.size or number > 1 else matrix
    first = 0
    while first < number:
        s = int(parts.size[first])
        same = int(np.searchsorted(parts.size[:number], s, side="right"))
        b = min(same - first, max(1, STACK_LIMIT // s**2))
        begin = int(parts.start[first])
        span = slice(int(blocks.indptr[begin]), int(blocks.indptr[begin + b * s]))
        rows = np.repeat(np.arange(b * s), np.diff(blocks.indptr[begin : begin + b * s + 1]))
        stack = np.zeros((b, s, s))
        stack[rows // s, rows % s, (blocks.indices[span] - begin) % s] = blocks.data[span]
        members = nodes[begin : begin + b * s].reshape(b, s)
        values, vectors, accuracy = dense_batch(stack, None if kernel is None else kernel[members])
        yield dense_part(members, values, vectors, accuracy, count, both=kernel is None)
        first += b


def dense_part(
    nodes: np.ndarray, values: np.ndarray, vectors: np.ndarray, accuracy: np.ndarray, count: int, both: bool
) -> Part:
    """A part of complete solutions, of which ``count`` pairs at the low end, or at both, are kept."""
    s = values.shape[1]
    take = np.arange(min(s, count))
    if both:
        take = np.union1d(take, np.arange(max(0, s - count), s))
    gram = np.swapaxes(vectors, 1, 2) @ vectors - np.eye(s)
    errors = np.repeat(accuracy[:, None], take.size, axis=1)
    return Part(nodes, values[:, take], [vectors[:, :, take]], errors, float(np.abs(gram).max(initial=0.0)))


def part_of_pairs(nodes: np.ndarray, ends: list[Pairs], kernel: Any | None) -> Part:
    """One large component from the pairs of its low end, and of its high end (pairs of -A), and its zero mode."""
    low = ends[0]
    values, vectors, errors = [low.values], [low.vectors[None]], [low.residuals]
    if kernel is not None:
        values, vectors, errors = [np.zeros(1), *values], [kernel[None, :, None], *vectors], [np.zeros(1), *errors]
    if len(ends) == 2:
        values.append(-ends[1].values[::-1])
        vectors.append(ends[1].vectors[None, :, ::-1])
        errors.append(ends[1].residuals[::-1])
    return Part(
        nodes[None, :],
        np.concatenate(values)[None, :],
        vectors,
        np.concatenate(errors)[None, :],
        max(end.orthogonality for end in ends),
    )
