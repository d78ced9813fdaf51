"""The spectrum of one graph: operator, solver, exact zero modes, truncation."""

import numpy as np
import scipy.sparse as sp

from gssc.checks import check_choice
from gssc.spectra.dense import solve_dense
from gssc.spectra.operators import Operator, build_operator, zero_mode_basis
from gssc.spectra.truncation import Spectrum, Truncation, ZeroModes, truncate

# Two computed values of one eigenvalue differ by at most twice the accuracy of the solver; ten times leaves room.
CLUSTER_TOLERANCE = 10.0


def solve(
    adjacency: sp.csr_array,
    operator: Operator,
    k: int,
    *,
    zero_modes: ZeroModes = "keep",
    truncation: Truncation = "eigenspace",
    solver: str = "auto",
    device: str = "cpu",
    seed: int = 0,
) -> Spectrum:
    """The first ``k`` eigenpairs of the operator of a symmetric adjacency matrix [n, n], in float64.

    The one solver here is dense, on the CPU and without random numbers: ``device`` and ``seed`` change nothing.
    """
    check_choice("solver", solver, ("auto", "dense"))
    values, vectors, accuracy = solve_dense(build_operator(adjacency, operator).toarray())
    tolerance = CLUSTER_TOLERANCE * accuracy
    if operator != "adjacency":
        exact = zero_mode_basis(adjacency, operator)
        count = exact.shape[1]
        # Unless rounding hides a small eigenvalue among the zeros, their exact vectors are known.
        if int((np.abs(values) <= tolerance).sum()) == count:
            values[:count], vectors[:, :count] = 0.0, exact
    return truncate(
        values,
        vectors,
        k,
        tolerance=tolerance,
        by_magnitude=operator == "adjacency",
        zero_modes=zero_modes,
        truncation=truncation,
    )
