"""Connected components of one graph: how the operator falls apart, and all pairs of small components at once.

A spectrum is solved per component and merged: iterative solvers see one zero mode, which is known, and eigenvalues
that repeat in many equal components are no longer degenerate. Components of equal size are stacked and go through one
batched dense solve.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

# Numbers of one stack of dense matrices: 32 MB in float64.
STACK_LIMIT = 2**22


@dataclass(frozen=True)
class Part:
    """Eigenpairs of b components of s nodes each.

    nodes [b, s] are the components' nodes, values [b, m] are theirs, errors [b, m] bound ‖L p - λ p‖, and the vectors
    [b, s, m] are where they were computed.
    """

    nodes: np.ndarray
    values: np.ndarray
    vectors: Tensor
    errors: np.ndarray
    orthogonality: float

    def write(self, pairs: np.ndarray, out: Tensor, columns: np.ndarray) -> None:
        """Copy the vectors of these ``pairs``, numbers into ``values.ravel()``, to these columns of out [n, k]."""
        member, pair = np.divmod(pairs, self.values.shape[1])
        for number in np.unique(member):
            source, target = (torch.from_numpy(numbers[member == number]) for numbers in (pair, columns))
            vectors = self.vectors[number][:, source].to(out.device)
            if vectors.shape[0] == out.shape[0]:
                out[:, target] = vectors
            else:
                out[torch.from_numpy(self.nodes[number])[:, None], target] = vectors


def find_components(smallest_node: np.ndarray) -> list[np.ndarray]:
    """Nodes [b, s] of the b components of each size s, smallest size first, from the smallest node of every node's."""
    size = np.bincount(smallest_node, minlength=smallest_node.size)[smallest_node]
    sizes, counts = np.unique(size, return_counts=True)
    groups = np.split(np.lexsort((smallest_node, size)), np.cumsum(counts))[:-1]
    return [nodes.reshape(-1, s) for nodes, s in zip(groups, sizes, strict=True)]


def unit_modes(mass: np.ndarray) -> np.ndarray:
    """The zero modes of b components, unit vectors, from their `zero_mode_mass`, [b, s] both."""
    return np.sqrt(mass / mass.sum(axis=1, keepdims=True))


def small_parts(
    matrix: sp.csr_array, components: list[np.ndarray], mass: np.ndarray | None, limit: int, count: int
) -> Iterator[Part]:
    """Parts of the components of at most ``limit`` nodes, ``count`` pairs each as `dense_part` has them.

    ``mass`` [n] is the `zero_mode_mass` of a Laplacian, None for the adjacency matrix.
    """
    place = np.empty(matrix.shape[0], dtype=np.int64)
    for nodes in components:
        s = nodes.shape[1]
        step = max(1, STACK_LIMIT // s**2)
        for first in range(0, len(nodes) if s <= limit else 0, step):
            members = nodes[first : first + step]
            place[members] = np.arange(s)
            rows = matrix if s == matrix.shape[0] else matrix[members.ravel()]
            row = np.repeat(np.arange(members.size), np.diff(rows.indptr))
            stack = np.zeros((len(members), s, s))
            stack[row // s, row % s, place[rows.indices]] = rows.data
            yield dense_part(members, stack, None if mass is None else unit_modes(mass[members]), count)


def dense_part(nodes: np.ndarray, stack: np.ndarray, zero_modes: np.ndarray | None, count: int) -> Part:
    """A part of complete solutions, from the operators [b, s, s] of components on these ``nodes`` [b, s].

    Kept are ``count`` pairs at the low end of Laplacians, which have ``zero_modes`` [b, s], and at both ends of the
    adjacency matrix. A known zero mode is moved to the top of the spectrum before the solve, so that even eigenvalues
    that rounding cannot tell from zero get vectors orthogonal to it, and takes the first place after it, exactly.
    """
    s = nodes.shape[1]
    norm = np.abs(stack).sum(axis=2).max(axis=1)
    column = np.arange(s)
    if zero_modes is None:
        values, vectors = np.linalg.eigh(stack)
        column = column[(column < count) | (column >= s - count)]
    else:
        lifted = stack + (2.0 * norm)[:, None, None] * (zero_modes[:, :, None] * zero_modes[:, None, :])
        values, vectors = np.linalg.eigh(lifted)
        values = np.concatenate([np.zeros_like(values[:, :1]), values[:, :-1]], axis=1)
        vectors = np.concatenate([zero_modes[:, :, None], vectors[:, :, :-1]], axis=2)
        column = column[:count]
    residual = np.linalg.norm(stack @ vectors - vectors * values[:, None, :], axis=1)
    # A residual can be zero by luck: no eigenvalue is better known than to machine precision times the norm.
    accuracy = np.maximum(residual.max(axis=1), np.finfo(np.float64).eps * norm)
    errors = np.repeat(accuracy[:, None], column.size, axis=1)
    gram = np.swapaxes(vectors, 1, 2) @ vectors - np.eye(s)
    kept_vectors = torch.from_numpy(vectors[:, :, column])
    return Part(nodes, values[:, column], kept_vectors, errors, float(np.abs(gram).max(initial=0.0)))
