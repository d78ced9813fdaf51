"""LOBPCG (SciPy) preconditioned by algebraic multigrid (pyamg, optional): for hard, mesh-like Laplacians."""

import warnings

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lobpcg

from gssc.checks import first_line
from gssc.spectra.certificate import Pairs, SpectrumError, lowest_pairs, rayleigh_ritz
from gssc.spectra.factorization import with_int32

RESIDUAL_TARGET = 1e-9
ITERATIONS = 200
GUARD = 4


def solve_lobpcg(
    matrix: sp.csr_array, count: int, lower: float, zero_modes: np.ndarray | None = None, seed: int = 0
) -> Pairs:
    """The ``count`` smallest eigenpairs of H, with a spectrum of at least ``lower``, besides ``zero_modes`` [n, z].

    The preconditioner is one multigrid cycle for H - shift, positive definite for a shift below the spectrum. Raises
    SpectrumError when the residuals stay too large; what they are is left to the certificate.
    """
    import pyamg

    n = matrix.shape[0]
    fixed = np.zeros((n, 0)) if zero_modes is None else zero_modes
    scale = float(abs(matrix).sum(axis=1).max())
    shift = -1e-6 * scale if zero_modes is not None else lower - 1e-2 * scale
    positive = (matrix - shift * sp.eye_array(n)).tocsr()
    positive.sort_indices()
    positive = sp.csr_matrix(with_int32(positive))
    start = np.random.default_rng(seed).standard_normal((n, count + GUARD))
    start -= fixed @ (fixed.T @ start)
    tolerance = min(RESIDUAL_TARGET * scale, 1e-7)
    state = np.random.get_state()  # noqa: NPY002  # pyamg draws from the global generator and takes no other
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # non-convergence shows in the residuals
        try:
            np.random.seed(seed)  # noqa: NPY002
            cycle = pyamg.smoothed_aggregation_solver(positive, max_coarse=500).aspreconditioner()
            _, vectors = lobpcg(matrix, start, M=cycle, Y=zero_modes, tol=tolerance, maxiter=ITERATIONS, largest=False)
        except (ValueError, np.linalg.LinAlgError, RuntimeError) as error:
            raise SpectrumError(f"LOBPCG: {first_line(error)}") from error
        finally:
            np.random.set_state(state)  # noqa: NPY002
    if not np.isfinite(vectors).all():
        raise SpectrumError("LOBPCG: not finite")
    return lowest_pairs(rayleigh_ritz(matrix, vectors - fixed @ (fixed.T @ vectors)), count, fixed)
