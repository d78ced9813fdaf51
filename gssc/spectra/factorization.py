"""Sparse symmetric factorisation L - σI = L̂ D L̂ᵀ without pivoting, its price estimated first; what comes from it.

SciPy has no LDLᵀ, but SuperLU in symmetric mode with pivoting switched off yields U = D L̂ᵀ up to rounding.

*Inertia.* Sylvester: D has as many negative entries as L̂ D L̂ᵀ has negative eigenvalues. Weyl: these are the
eigenvalues of L below σ, up to those within ‖E‖ of σ, E = L - σI - L̂ D L̂ᵀ, and ‖E‖ is measured. So the count is a
proof whenever ‖E‖ is smaller than the distance of σ to both sides of the gap, however large the pivots grew.

*Shift-invert Lanczos.* The smallest eigenpairs: ARPACK (SciPy) runs on T = Q (H - shift)⁻¹ Q, whose largest eigenvalues
belong to the smallest of H; Q projects out what is known. A Krylov space of one vector may see an eigenvalue of higher
multiplicity once, so that the search is repeated on the complement of what was found, until nothing smaller turns up.
"""

import inspect
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh, splu
from threadpoolctl import threadpool_limits

from gssc.checks import first_line
from gssc.spectra.certificate import Pairs, SpectrumError, lowest_pairs, rayleigh_ritz

# Fill is at most nodes × width (width: half bandwidth after Cuthill-McKee, close to the size of a separator); minimum
# degree stays 10 to 100 times below. A grid of 1,000 × 1,000 has width 1,000; random graphs of 10,000 nodes 5,000.
WIDTH_LIMIT = 1_500
ENVELOPE_LIMIT = 1_200_000_000
# Trees and star-like fringes are eliminated without fill, and would look wide; so many rounds of leaves are peeled.
PEEL_ROUNDS = 24
# Minimum degree takes time quadratic in the largest degree (6 s on a star of 100,000 nodes); COLAMD sets hubs aside.
HUB_DEGREE = 1_000
PROBES = 8
# The shift below the known zero mode of a Laplacian, relative to ‖H‖; the mode is projected out, so that a shift this
# close costs no accuracy.
SHIFT = 1e-8
SWEEPS = 8
# ARPACK draws restart vectors itself; since SciPy 1.17 from a generator that must be given for the same bytes.
HAS_RNG = "rng" in inspect.signature(eigsh).parameters


def with_int32(matrix: Any) -> Any:
    """The same sparse matrix with 32-bit indices, which is all that SuperLU and others of its age take."""
    indices, indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return type(matrix)((matrix.data, indices, indptr), shape=matrix.shape)


def elimination_width(matrix: sp.csr_array) -> int:
    """Half bandwidth after Cuthill-McKee of what remains when leaves are peeled off: an estimate of separator size."""
    core = with_int32(matrix)
    core.data = np.ones(core.data.size)
    alive = np.ones(matrix.shape[0], dtype=bool)
    degree = np.diff(core.indptr) - (matrix.diagonal() != 0)
    for _ in range(PEEL_ROUNDS):
        leaves = alive & (degree <= 1)
        if not leaves.any():
            break
        alive &= ~leaves
        degree = degree - core @ leaves.astype(np.float64)
    if not alive.any():
        return 1
    if not alive.all():
        core = core[alive][:, alive].tocsr()
    order = reverse_cuthill_mckee(core, symmetric_mode=True)
    position = np.empty(order.size, dtype=np.int64)
    position[order] = np.arange(order.size)
    rows = np.repeat(position, np.diff(core.indptr))
    return int(np.abs(rows - position[core.indices]).max(initial=1))


def is_cheap(matrix: sp.csr_array) -> bool:
    """Whether a sparse factorisation is affordable: seconds and a few GB at the worst; False for expanders."""
    n = matrix.shape[0]
    # An expander has no small separator: its width is a constant fraction of n. Save the search where it is hopeless.
    if matrix.nnz > 200 * n and n > WIDTH_LIMIT:
        return False
    width = elimination_width(matrix)
    return width <= WIDTH_LIMIT and width * n <= ENVELOPE_LIMIT


def factorize(matrix: sp.csr_array, shift: float) -> Any | None:
    """SuperLU factors of L - shift·I with equal row and column permutation; None when that failed."""
    shifted = with_int32((matrix - shift * sp.eye_array(matrix.shape[0])).tocsc())
    order = "COLAMD" if np.diff(shifted.indptr).max(initial=0) > HUB_DEGREE else "MMD_AT_PLUS_A"
    options = {"SymmetricMode": True, "Equil": False}
    try:
        factors = splu(shifted, permc_spec=order, diag_pivot_thresh=0.0, options=options)
    except (RuntimeError, MemoryError):  # an exactly zero pivot, or no memory for the fill
        return None
    return factors if np.array_equal(factors.perm_r, factors.perm_c) else None


@threadpool_limits.wrap(limits=1, user_api="blas")  # type: ignore[untyped-decorator]  # threadpoolctl has no types
def negative_count(matrix: sp.csr_array, shift: float, margin: float, seed: int = 0) -> int | None:
    """Number of eigenvalues of L below ``shift``, exact unless one lies within ``margin`` of it; None if not proved.

    ‖E‖ is estimated from above by four times its Frobenius norm as seen by random probes, and must be below margin.
    """
    factors = factorize(matrix, shift)
    if factors is None:
        return None
    lower, diagonal = factors.L, factors.U.diagonal()
    if not np.isfinite(diagonal).all() or np.abs(diagonal).min() <= np.finfo(np.float64).tiny:
        return None
    probe = np.random.default_rng(seed).standard_normal((matrix.shape[0], PROBES))
    permuted = np.empty_like(probe)
    permuted[factors.perm_c] = probe
    product = lower @ (diagonal[:, None] * (lower.T @ permuted))
    error = matrix @ probe - shift * probe - product[factors.perm_c]
    # E‖E z‖² = ‖E‖²_F ≥ ‖E‖².
    norm = 4.0 * float(np.sqrt((error**2).sum(axis=0).mean()))
    return int((diagonal < 0).sum()) if norm < margin else None


def lanczos(operator: Any, count: int, which: str, rng: np.random.Generator, tol: float = 0.0) -> np.ndarray:
    """Eigenvectors [n, count] at one end ("LA", "SA") by ARPACK with a seeded Gaussian start."""
    n = operator.shape[0]
    extra = {"rng": rng} if HAS_RNG else {}
    size = min(n, max(2 * count + 1, count + 20))
    try:
        return eigsh(operator, count, which=which, v0=rng.standard_normal(n), ncv=size, tol=tol, **extra)[1]
    except ArpackError as error:
        raise SpectrumError(f"shift-invert Lanczos: {first_line(error)}") from error


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
