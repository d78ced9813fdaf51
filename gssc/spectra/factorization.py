"""Sparse symmetric factorisation L - σI = L̂ D L̂ᵀ without pivoting, its price estimated first; and inertia from it.

SciPy has no LDLᵀ, but SuperLU in symmetric mode with pivoting switched off yields U = D L̂ᵀ up to rounding. Sylvester:
D has as many negative entries as L̂ D L̂ᵀ has negative eigenvalues. Weyl: these are the eigenvalues of L below σ, up
to those within ‖E‖ of σ, E = L - σI - L̂ D L̂ᵀ, and ‖E‖ is measured. So the count is a proof whenever ‖E‖ is smaller
than the distance of σ to both sides of the gap, however large the pivots grew.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import splu
from threadpoolctl import threadpool_limits

# Fill is at most nodes × width (width: half bandwidth after Cuthill-McKee, close to the size of a separator); minimum
# degree stays 10 to 100 times below. A grid of 1,000 × 1,000 has width 1,000; random graphs of 10,000 nodes 5,000.
WIDTH_LIMIT = 1_500
ENVELOPE_LIMIT = 1_200_000_000
# Trees and star-like fringes are eliminated without fill, and would look wide; so many rounds of leaves are peeled.
PEEL_ROUNDS = 24
# Minimum degree takes time quadratic in the largest degree (6 s on a star of 100,000 nodes); COLAMD sets hubs aside.
HUB_DEGREE = 1_000
PROBES = 8


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
    hubs = int(np.diff(shifted.indptr).max(initial=0)) > HUB_DEGREE
    try:
        factors = splu(
            shifted,
            permc_spec="COLAMD" if hubs else "MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True, "Equil": False},
        )
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
    magnitude = np.abs(diagonal)
    if not np.isfinite(diagonal).all() or magnitude.min() <= np.finfo(np.float64).tiny:
        return None
    probe = np.random.default_rng(seed).standard_normal((matrix.shape[0], PROBES))
    permuted = np.empty_like(probe)
    permuted[factors.perm_c] = probe
    product = lower @ (diagonal[:, None] * (lower.T @ permuted))
    error = matrix @ probe - shift * probe - product[factors.perm_c]
    # E‖E z‖² = ‖E‖²_F ≥ ‖E‖².
    norm = 4.0 * float(np.sqrt((error**2).sum(axis=0).mean()))
    return int((diagonal < 0).sum()) if norm < margin else None
