"""All eigenpairs of a chunk of small graphs by one batched dense solve, measured: a complete, hence proved solve.

Two kinds of known eigenvectors are kept away from the graph's others: the zero modes of a Laplacian, which follow from
its components, and the nodes that only fill up the chunk. Both are lifted beyond the spectrum for the solve, so that
they come last and cannot mix with small eigenvalues, and the exact zero modes take the first places afterwards.
"""

import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gssc.spectra.batched_operators import operator_batched, zero_modes_batched
from gssc.spectra.batched_truncation import gather_rows
from gssc.spectra.certificate import SpectrumError
from gssc.spectra.operators import Operator
from gssc.spectra.solve import CLUSTER_TOLERANCE

# What a backward stable solver always reaches; more means that it failed.
MAX_RELATIVE_RESIDUAL = MAX_ORTHOGONALITY = 1e-10
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class ChunkPairs:
    """Every eigenpair of a chunk; what lies past a graph's own ``count`` is padding, with rows of zeros.

    ``values`` [B, m] ascend, ``rows`` [B, m, m] are the eigenvectors, ``error`` [B, m] is ‖L p - λ p‖, ``orthogonality``
    [B] is max |PᵀP - I| over all pairs, and values closer than ``tolerance`` [B] count as equal.
    """

    values: Tensor
    rows: Tensor
    error: Tensor
    orthogonality: Tensor
    tolerance: Tensor


def complete_pairs(
    adjacency: Tensor, degree: Tensor, count: Tensor, label: Tensor | None, operator: Operator, graph: Tensor
) -> ChunkPairs:
    """Solve and measure a chunk: symmetric ``adjacency`` [B, m, m], ``degree`` [B, m], ``count`` [B] nodes each.

    ``label`` [B, m] are the components of a Laplacian (`components_batched`), None for the adjacency matrix; ``graph``
    [B] numbers the graphs for error messages.
    """
    column = torch.arange(adjacency.shape[1], device=adjacency.device)
    own = (column < count.unsqueeze(1)).to(adjacency.dtype)
    # Row sums of |L| bound the spectrum: twice the degree, or 2 for the normalised operator.
    bound = adjacency.abs().sum(1) if label is None else degree if operator == "combinatorial" else degree.sign()
    beyond = 3.0 * bound.amax(1, keepdim=True)
    beyond.masked_fill_(beyond == 0.0, 1.0)
    known = lift = is_zero = None
    if label is not None:
        known = zero_modes_batched(label, degree, operator)
        # The sum of u uᵀ over the zero modes u: no two of them share a node.
        mode = known.sum(1) * beyond.sqrt()
        lift = mode.unsqueeze(2) * mode.unsqueeze(1)
        if known.shape[1] > 1:
            lift.masked_fill_(label.unsqueeze(2) != label.unsqueeze(1), 0.0)
    matrix = operator_batched(adjacency, degree, operator, lift)
    matrix.diagonal(dim1=1, dim2=2).addcmul_(1.0 - own, beyond)
    values, vectors = _eigh(matrix, graph)
    # What the operator with lifted modes has in place of ``values``.
    lifted, rows = values, vectors.mT
    if known is None:
        rows = rows * own.unsqueeze(2)
    elif known.shape[1] == 1:  # connected graphs only
        is_zero = column == 0
        lifted = torch.cat([beyond, values[:, :-1]], 1)
        rows = torch.empty_like(matrix)
        rows[:, :1] = known
        torch.mul(vectors.mT[:, :-1], own[:, 1:].unsqueeze(2), out=rows[:, 1:])
    else:
        place = column - 1 - label.amax(1, keepdim=True)
        is_zero = place < 0
        lifted = torch.where(is_zero, beyond, values.gather(1, place.clamp(min=0)))
        rows = gather_rows(rows, place, own.masked_fill(is_zero, 0.0))
        rows[:, : known.shape[1]] += known
    error = torch.bmm(rows, matrix).addcmul_(rows, lifted.unsqueeze(2), value=-1.0).norm(dim=2)
    values, solved = lifted, error
    if is_zero is not None:
        values, solved = lifted.masked_fill(is_zero, 0.0), error.masked_fill(is_zero, 0.0)
    norm = (values * own).abs().amax(1)
    gram = torch.bmm(rows, rows.mT)
    gram.diagonal(dim1=1, dim2=2).sub_(own)
    orthogonality = torch.maximum(gram.amax((1, 2)), -gram.amin((1, 2)))
    failed = ~((error.amax(1) <= MAX_RELATIVE_RESIDUAL * beyond.squeeze(1)) & (orthogonality <= MAX_ORTHOGONALITY))
    if bool(failed.any()):
        at = int(failed.nonzero()[0])
        raise SpectrumError(
            f"graph {int(graph[at])} of {int(count[at])} nodes: the dense solver left a residual of "
            f"{float(error[at].max()):.1e} at norm {float(norm[at]):.1e}, orthogonality {float(orthogonality[at]):.1e}"
        )
    tolerance = CLUSTER_TOLERANCE * torch.maximum(solved.amax(1), EPS * norm)
    return ChunkPairs(values, rows, error, orthogonality, tolerance)


def _eigh(matrix: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues [B, m] and eigenvectors as columns."""
    try:
        # LAPACK wants columns, and from the upper triangle it skips the nodes that only fill up, which come last.
        values, vectors = torch.linalg.eigh(matrix.mT, UPLO="U")
    except RuntimeError as error:  # torch.linalg.LinAlgError is one; out of memory must pass
        if "converge" not in str(error):
            raise
        at = re.search(r"Batch element (\d+)", str(error))
        which = f"graph {int(graph[int(at[1])])}" if at else f"one of graphs {graph.tolist()}"
        raise SpectrumError(f"{which}: the dense solver did not converge ({error})") from error
    return values, vectors
