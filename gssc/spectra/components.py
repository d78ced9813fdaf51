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

from gssc.spectra.dense_pairs import complete_pairs
from gssc.spectra.operators import ORDINARY_EXPONENT

# Numbers of one stack of dense matrices: 32 MB in float64.
STACK_LIMIT = 2**22


@dataclass(frozen=True)
class Part:
    """Eigenpairs of b components of s nodes each.

    nodes [b, s] are the components' nodes, values [b, m] are theirs, errors [b, m] are ‖L p - λ p‖, and the vectors
    [b, s, m] are where they were computed. ``norm`` is the largest |λ| of all, 0 where not all were computed. The first
    value of each component is its exact zero mode where there are ``zero_modes``.
    """

    nodes: np.ndarray
    values: np.ndarray
    vectors: Tensor
    errors: np.ndarray
    orthogonality: float
    norm: float = 0.0
    zero_modes: bool = False

    def zero_of(self, otherwise: int) -> np.ndarray:
        """The first node of the component for pairs that are its exact zero mode, and ``otherwise``, [b, m]."""
        out = np.full(self.values.shape, otherwise)
        if self.zero_modes:
            out[:, 0] = self.nodes.min(axis=1)
        return out

    def write(self, pairs: np.ndarray, out: Tensor, columns: np.ndarray) -> None:
        """Copy the vectors of these ``pairs``, numbers into ``values.ravel()``, to these columns of out [n, k]."""
        member, pair = np.divmod(pairs, self.values.shape[1])
        for number in np.unique(member):
            source, target = (numbers[member == number] for numbers in (pair, columns))
            vectors = self.vectors[number][:, _as_slice(source)].to(out.device)
            if vectors.shape[0] == out.shape[0]:
                out[:, _as_slice(target)] = vectors
            else:
                out[torch.from_numpy(self.nodes[number])[:, None], torch.from_numpy(target)] = vectors


def _as_slice(numbers: np.ndarray) -> slice | Tensor:
    """A slice where they follow each other: no copy of a large part."""
    follow = bool((np.diff(numbers) == 1).all())
    return slice(int(numbers[0]), int(numbers[-1]) + 1) if follow else torch.from_numpy(numbers)


def find_components(smallest_node: np.ndarray) -> list[np.ndarray]:
    """Nodes [b, s] of the b components of each size s, smallest size first, from the smallest node of every node's."""
    size = np.bincount(smallest_node, minlength=smallest_node.size)[smallest_node]
    sizes, counts = np.unique(size, return_counts=True)
    groups = np.split(np.lexsort((smallest_node, size)), np.cumsum(counts))[:-1]
    return [nodes.reshape(-1, s) for nodes, s in zip(groups, sizes, strict=True)]


def small_parts(
    matrix: sp.csr_array, bounds: np.ndarray, mass: np.ndarray | None, components: list[np.ndarray], count: int
) -> Iterator[Part]:
    """Parts of components of an operator [n, n], ``count`` pairs each as `dense_part` has them.

    ``bounds`` [n] are the operator's `row_bounds`, ``mass`` [n] is the `zero_mode_mass` of a Laplacian.
    """
    place = np.empty(matrix.shape[0], dtype=np.int64)
    for nodes in components:
        s = nodes.shape[1]
        step = max(1, STACK_LIMIT // s**2)
        for first in range(0, len(nodes), step):
            members = nodes[first : first + step]
            place[members] = np.arange(s)
            rows = matrix if s == matrix.shape[0] else matrix[members.ravel()]
            row = np.repeat(np.arange(members.size), np.diff(rows.indptr))
            stack = np.zeros((len(members), s, s))
            stack[row // s, row % s, place[rows.indices]] = rows.data
            mass_of_members = None if mass is None else mass[members]
            yield dense_part(members, stack, bounds[members].max(axis=1), mass_of_members, count)


def dense_part(nodes: np.ndarray, stack: np.ndarray, bound: np.ndarray, mass: np.ndarray | None, count: int) -> Part:
    """A part of complete solutions, from the operators [b, s, s] of components on these ``nodes`` [b, s].

    They are bounded by ``bound`` [b]. Kept are ``count`` pairs at the low end of Laplacians, which have the
    `zero_mode_mass` [b, s], and at both ends of the adjacency matrix, which has none. Components whose weights are next
    to nothing beside those of the graph are solved times a power of 2: subnormal numbers have too few digits.
    """
    b, s = nodes.shape
    exponent = np.where(bound < np.ldexp(1.0, -ORDINARY_EXPONENT), np.frexp(bound)[1], 0)
    stack, bound = np.ldexp(stack, -exponent[:, None, None]), np.ldexp(bound, -exponent)
    mass_of_node = None if mass is None else torch.from_numpy(mass)
    pairs = complete_pairs(torch.from_numpy(stack), torch.from_numpy(bound), torch.full((b,), s), mass_of_node)
    column = torch.arange(s)
    column = column[(column < count) | (column >= s - count)] if mass is None else column[:count]
    index = column.expand(b, -1)
    errors = np.ldexp(pairs.error.gather(1, pairs.place.gather(1, index)).numpy(), exponent[:, None])
    values = np.ldexp(pairs.values.gather(1, index).numpy(), exponent[:, None])
    norm = float(np.ldexp(pairs.norm.numpy(), exponent).max())
    vectors, orthogonality = pairs.vectors(index).mT, float(pairs.orthogonality.max())
    return Part(nodes, values, vectors, errors, orthogonality, norm, zero_modes=mass is not None)
