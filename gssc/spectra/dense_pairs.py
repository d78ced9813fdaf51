"""All eigenpairs of a stack of dense operators by one batched solve, measured: a complete, hence proved solve.

Two kinds of eigenvectors are known beforehand: the zero modes of a Laplacian, which follow from its components, and the
nodes that only fill up the stack. Both are lifted beyond the spectrum, so that they come last and cannot mix with small
eigenvalues; LAPACK hardly works on coordinates that stand alone. The exact modes take their places afterwards.
"""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from gssc.spectra.certificate import SpectrumError
from gssc.spectra.truncation import DENSE_ACCURACY

# What a backward stable solver always reaches; more means that it failed.
MAX_RELATIVE_RESIDUAL = MAX_ORTHOGONALITY = 1e-10


@dataclass(frozen=True)
class StackPairs:
    """Every eigenpair of a stack.

    ``values`` [B, m] ascend, and what follows a graph's own number is anything. The vector of value i is row
    ``place[:, i]`` of ``rows`` [B, m, m], and its entry of ``error`` [B, m] is ‖L p - λ p‖. ``orthogonality`` [B] is
    max |PᵀP - I| over all pairs. ``norm`` [B] is ‖L‖, or more where rounding is.
    """

    values: Tensor
    place: Tensor
    rows: Tensor
    error: Tensor
    orthogonality: Tensor
    norm: Tensor

    def vectors(self, index: Tensor) -> Tensor:
        """The eigenvectors of the values ``index`` [B, K], as rows [B, K, m]."""
        batch, size, _ = self.rows.shape
        place = self.place.gather(1, index) + size * torch.arange(batch, device=index.device).unsqueeze(1)
        return self.rows.view(batch * size, -1).index_select(0, place.view(-1)).view(*index.shape, -1)


def complete_pairs(
    matrix: Tensor,
    bound: Tensor,
    count: Tensor,
    mass: Tensor | None,
    label: Tensor | None = None,
    graph: Tensor | None = None,
) -> StackPairs:
    """Solve and measure a stack of symmetric operators [B, m, m], of ``count`` [B] nodes and bounded by ``bound`` [B].

    ``mass`` [B, m] is the `zero_mode_mass` of Laplacians, None for adjacency matrices; ``label`` [B, m] numbers the
    component of each node within its graph, -1 for padding, None where all are connected. ``graph`` [B] numbers the
    graphs for error messages.
    """
    size, count = matrix.shape[1], count.unsqueeze(1)
    column = torch.arange(size, device=matrix.device)
    is_node = column < count
    beyond = torch.where(bound > 0.0, 1.5 * bound, 1.0).unsqueeze(1)
    if mass is None:
        solved = count
        values, rows = _solve(matrix.clone(), is_node, beyond, graph)
    else:
        label = torch.zeros_like(mass, dtype=torch.long) if label is None else label
        zeros, zero_modes = label.amax(1, keepdim=True) + 1, exact_zero_modes(label, mass)
        solved = count - zeros
        # + 1.5 · bound · Σ u uᵀ over the zero modes u, no two of which share a node.
        unit = zero_modes.sum(1)
        lift = (beyond * unit).unsqueeze(2) * unit.unsqueeze(1)
        if zero_modes.shape[1] > 1:
            lift *= label.unsqueeze(2) == label.unsqueeze(1)
        values, rows = _solve(lift.add_(matrix), is_node, beyond, graph)
        number = torch.arange(zero_modes.shape[1], device=matrix.device)
        rows[is_node & (column >= solved)] = zero_modes[number < zeros]
    rows.view(-1, size).index_fill_(0, (~is_node).view(-1).nonzero().view(-1), 0.0)
    is_solved = column < solved
    values = values.masked_fill(~is_solved, 0.0)
    error = torch.bmm(rows, matrix).addcmul_(rows, values.unsqueeze(2), value=-1.0).norm(dim=2)
    norm = values.abs().amax(1)
    gram = torch.bmm(rows, rows.mT)
    gram.diagonal(dim1=1, dim2=2).sub_(is_node.to(gram.dtype))
    orthogonality = torch.maximum(gram.amax((1, 2)), -gram.amin((1, 2)))
    failed = ~((error.amax(1) <= MAX_RELATIVE_RESIDUAL * beyond.squeeze(1)) & (orthogonality <= MAX_ORTHOGONALITY))
    if bool(failed.any()):
        at = int(failed.nonzero()[0])
        raise SpectrumError(
            f"{_name(graph, at)} of {int(count[at])} nodes: the dense solver left a residual of "
            f"{float(error[at].max()):.1e} at norm {float(norm[at]):.1e}, orthogonality {float(orthogonality[at]):.1e}"
        )
    norm = torch.maximum(norm, error.amax(1) / DENSE_ACCURACY)
    if mass is not None:
        # Loops cancel in D - A, not their rounding.
        norm = torch.maximum(norm, bound / 2.0)
    # Zero modes, which come after what was solved, are the smallest.
    place = column - count + solved
    place = torch.where(place < 0, place + count, place)
    return StackPairs(values.gather(1, place), place, rows, error, orthogonality, norm)


def _name(graph: Tensor | None, at: int) -> str:
    return "a component" if graph is None else f"graph {int(graph[at])}"


def exact_zero_modes(label: Tensor, mass: Tensor) -> Tensor:
    """The kernels of Laplacians as orthonormal rows, [B, most components, m]; arguments as for `complete_pairs`.

    One for each component, proportional to the square root of the mass.
    """
    number = torch.arange(int(label.max()) + 1, device=label.device)
    member = (label.unsqueeze(1) == number.unsqueeze(1)) * mass.unsqueeze(1)
    total = member.sum(2, keepdim=True)
    return member.div_(total.masked_fill_(total == 0.0, 1.0)).sqrt_()


def _solve(matrix: Tensor, inside: Tensor, beyond: Tensor, graph: Tensor | None) -> tuple[Tensor, Tensor]:
    """Eigenvalues [B, m], ascending, and eigenvectors as rows; coordinates that are not ``inside`` stand alone.

    They are put ``beyond`` the others. Only the lower triangle of ``matrix`` is read, which is overwritten.
    """
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    diagonal.copy_(torch.where(inside, diagonal, beyond))
    try:
        # LAPACK wants columns: the lower triangle of the rows is the upper one of the columns. From there it begins
        # with the last coordinates, which stand alone, and has nothing to do for them.
        values, vectors = torch.linalg.eigh(matrix.mT, UPLO="U")
    except RuntimeError as error:  # torch.linalg.LinAlgError is one; out of memory must pass
        if "converge" not in str(error):
            raise
        at = re.search(r"Batch element (\d+)", str(error))
        which = _name(graph, int(at[1])) if at else f"one of {len(matrix)} from {_name(graph, 0)} on"
        raise SpectrumError(f"{which}: the dense solver did not converge ({error})") from error
    return values, vectors.mT.contiguous()
