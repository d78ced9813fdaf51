"""Shift-invert Lanczos: the smallest eigenpairs from a sparse factorisation, where that is cheap.

ARPACK (SciPy) runs on T = Q (H - shift)⁻¹ Q, whose largest eigenvalues belong to the smallest of H; Q projects out what
is known. A Krylov space of one vector may see an eigenvalue of higher multiplicity once, so that the search is
repeated on the complement of what was found, until nothing smaller turns up.
"""

import inspect
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh
from threadpoolctl import threadpool_limits

from gssc.spectra.certificate import Pairs, SpectrumError, lowest_pairs, rayleigh_ritz
from gssc.spectra.factorization import factorize

# The shift below the known zero mode of a Laplacian, relative to ‖H‖; the mode is projected out, so that a shift this
# close costs no accuracy.
SHIFT = 1e-8
SWEEPS = 8
# ARPACK draws restart vectors itself; since SciPy 1.17 from a generator that must be given for the same bytes.
HAS_RNG = "rng" in inspect.signature(eigsh).parameters


def lanczos(operator: Any, count: int, which: str, rng: np.random.Generator, tol: float = 0.0) -> np.ndarray:
    """Eigenvectors [n, count] at one end ("LA", "SA") by ARPACK with a seeded Gaussian start."""
    n = operator.shape[0]
    extra = {"rng": rng} if HAS_RNG else {}
    size = min(n, max(2 * count + 1, count + 20))
    try:
        return eigsh(operator, count, which=which, v0=rng.standard_normal(n), ncv=size, tol=tol, **extra)[1]
    except ArpackError as error:
        raise SpectrumError(f"shift-invert Lanczos: {str(error).splitlines()[0]}") from error


# Products in Lanczos are short and many: threads of the BLAS wait for each other (measured: three times slower on two).
@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator]  # threadpoolctl has no types
def solve_shift_invert(
    matrix: sp.csr_array, count: int, lower: float, zero_modes: np.ndarray | None = None, seed: int = 0
) -> Pairs:
    """The ``count`` smallest eigenpairs of H, with a spectrum of at least ``lower``, besides ``zero_modes`` [n, z].

    Raises SpectrumError when the factorisation fails or ARPACK does not converge.
    """
    n = matrix.shape[0]
    rng = np.random.default_rng(seed)
    fixed = np.zeros((n, 0)) if zero_modes is None else zero_modes
    scale = float(abs(matrix).sum(axis=1).max())
    shift = -SHIFT * scale
    if zero_modes is None:
        # Just below the lowest eigenvalue, as far as a few Lanczos steps see it, or below the bound.
        start = rayleigh_ritz(matrix, lanczos(matrix, 1, "SA", rng, tol=1e-3))
        shift = max(float(start.values[0] - start.residuals[0]) - 1e-3 * scale, lower - 1e-3 * scale)
    factors = factorize(matrix, shift)
    if factors is not None and (factors.U.diagonal() <= 0).any():
        factors = factorize(matrix, lower - 1e-3 * scale)
    if factors is None:
        raise SpectrumError("shift-invert Lanczos: the factorisation failed")

    def inverse(deflated: np.ndarray) -> LinearOperator:
        def apply(x: np.ndarray) -> np.ndarray:
            x = x.reshape(-1)
            y = factors.solve(x - deflated @ (deflated.T @ x))
            return y - deflated @ (deflated.T @ y)

        return LinearOperator((n, n), matvec=apply, dtype=np.float64)

    vectors = lanczos(inverse(fixed), count, "LA", rng)
    pairs = rayleigh_ritz(matrix, vectors - fixed @ (fixed.T @ vectors))
    more = 2
    for _ in range(SWEEPS):
        if n - fixed.shape[1] - pairs.values.size <= more:
            break
        deflated = np.concatenate([fixed, pairs.vectors], axis=1)
        new = lanczos(inverse(deflated), more, "LA", rng)
        new -= deflated @ (deflated.T @ new)
        lowest = float(rayleigh_ritz(matrix, new).values[0])
        if lowest >= pairs.values[count - 1] - 10 * pairs.residuals[:count].max():
            break
        pairs = rayleigh_ritz(matrix, np.concatenate([pairs.vectors, new], axis=1))
        more *= 2
    return lowest_pairs(pairs, count, fixed)
