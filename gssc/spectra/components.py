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

from gssc.spectra.batched_pairs import complete_pairs

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


@dataclass(frozen=True)
class Components:
    """Nodes [n] sorted by (component size, component), and where each component starts and how many nodes it has."""

    nodes: np.ndarray
    start: np.ndarray
    size: np.ndarray

    def members(self, component: int) -> np.ndarray:
        """The nodes of one component."""
        return self.nodes[self.start[component] : self.start[component] + self.size[component]]


def find_components(smallest_node: np.ndarray) -> Components:
    """Connected components, the smallest first, from the smallest node of every node's component [n]."""
    n = smallest_node.size
    heads = np.flatnonzero(smallest_node == np.arange(n))
    size = np.bincount(smallest_node, minlength=n)[heads]
    by_size = np.argsort(size, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[heads[by_size]] = np.arange(heads.size)
    size = size[by_size]
    return Components(np.argsort(rank[smallest_node], kind="stable"), np.cumsum(size) - size, size)


def small_parts(
    matrix: sp.csr_array, components: Components, mass: Tensor | None, bound: Tensor, limit: int, count: int
) -> Iterator[Part]:
    """Parts of the components of at most ``limit`` nodes; ``mass`` and ``bound`` [n] as for `dense_part`."""
    number = int(np.searchsorted(components.size, limit, side="right"))
    nodes = components.nodes[: int(components.size[:number].sum())]
    if not number:
        return
    blocks = matrix if components.size.size == 1 else matrix[nodes][:, nodes].tocsr()
    first = 0
    while first < number:
        s = int(components.size[first])
        same = int(np.searchsorted(components.size[:number], s, side="right"))
        b = min(same - first, max(1, STACK_LIMIT // s**2))
        begin = int(components.start[first])
        span = slice(int(blocks.indptr[begin]), int(blocks.indptr[begin + b * s]))
        rows = np.repeat(np.arange(b * s), np.diff(blocks.indptr[begin : begin + b * s + 1]))
        stack = np.zeros((b, s, s))
        stack[rows // s, rows % s, (blocks.indices[span] - begin) % s] = blocks.data[span]
        members = nodes[begin : begin + b * s].reshape(b, s)
        of_members = None if mass is None else mass[members]
        yield dense_part(members, torch.from_numpy(stack), of_members, bound[members], count)
        first += b


def dense_part(nodes: np.ndarray, stack: Tensor, mass: Tensor | None, bound: Tensor, count: int) -> Part:
    """``count`` pairs of every component, from the operators [b, s, s] on their ``nodes`` [b, s].

    Of Laplacians, which have zero modes of this ``mass`` [b, s] (`zero_mode_mass`), those at the low end, zero mode
    included; ``count`` at both ends of adjacency matrices. ``bound`` [b, s] is `beyond_spectrum`.
    """
    b, s = nodes.shape
    sizes, label = torch.full((b,), s), torch.zeros(b, s, dtype=torch.long)
    kernel = None if mass is None else (label, mass)
    solved = complete_pairs(stack, bound, sizes, kernel, lambda at: f"component of node {nodes[at, 0]}")
    column = torch.arange(s)
    column = column[(column < count) | (column >= s - count)] if mass is None else column[:count]
    errors = solved.accuracy.unsqueeze(1).expand(b, column.numel())
    vectors = solved.vectors(column.expand(b, -1)).mT
    return Part(nodes, solved.values[:, column].numpy(), vectors, errors.numpy(), float(solved.orthogonality.max()))
