"""Block Krylov space of a Chebyshev-filtered matrix: the smallest eigenpairs with the fewest products.

From a random block Q₀ of a few columns, Q_{j+1} = p(H) Q_j orthonormalised against all before it (block Lanczos with
full orthogonalisation), p = T_m on [edge, upper] with about twice as many eigenvalues below the edge as are wanted.
Rayleigh-Ritz with H itself on V = [Q₀ … Q_j] converges when V has some three times as many columns as pairs wanted, for
any m within reason: every product is shared by all pairs, where a filtered block iteration spends one product per pair
and degree. The filter must stay the same for that. Where it changes, since eigenvalues far below the others had limited
its degree and are now captured, or where the space has grown too large, it starts anew from the captured Ritz vectors
and a random mix of those that are not.

A block of b columns sees b copies of an eigenvalue, and more only through rounding. Where b copies appear
`ChebyshevBlock.iterate` takes over, and it comes next where the check of the count fails.
"""

import math

import numpy as np
import torch
from torch import Tensor

from gssc.spectra.certificate import SpectrumError
from gssc.spectra.chebyshev_filter import GROWTH_LIMIT, RETURN_LIMIT, ChebyshevFilter
from gssc.spectra.truncation import CLUSTER_TOLERANCE, largest_cluster

# Growth of the last eigenvalue wanted, per filter: e^RISE. Between 3 and 7 the number of products changes by a fifth.
RISE = 4.0
# Eigenvalues far below the others limit the degree until they are captured. From this fraction of the degree wanted on
# the filter is left as it is; below it, it changes where the degree rises by this factor at least.
ENOUGH = 0.5
CHANGE = 1.3
# The growth per degree of the last is taken for at least this fraction of that of the lowest, if it came out as none.
FLATTEST = 0.1
DEGREE_LIMIT = 1_500
RESTARTS = 6
WORK_LIMIT = 30_000
# Eigenvalues that lie this close, relative to ‖H‖, are one to the filter.
ONE_CLUSTER = 1e-9
# Ritz pairs below this residual, relative to ‖H‖, are in the space for good.
CAPTURED = 1e-8
# A new column of which less than this is new is replaced by a random one.
BREAKDOWN = 1e-10


def krylov(solver: ChebyshevFilter, count: int) -> int | None:
    """Fill ``solver.block`` with Ritz pairs of which the first ``count`` converged, and return count.

    None where the matrix is too small for it, where all that is wanted is one eigenvalue, or where one came out as
    often as the block has columns. Raises SpectrumError when it does not converge.
    """
    width = 8 if count <= 48 else 16
    wider = max(2 * count, count + 16)
    capacity = 5 * count + 8 * width
    if capacity + width > (solver.n - solver.zero_modes.shape[1]) // 2:
        return None
    low, (last, edge) = solver.spectral_edges([count, wider])
    if edge - low <= ONE_CLUSTER * solver.scale:
        return None
    space = _Space(solver, capacity)
    fresh, lowest, fixed = solver.normal(width, stream=2), low, space.ritz(np.zeros((0, 0)))
    restarts, degree = 0, 0
    while True:
        edge = min(max(edge, low + 1e-6 * (solver.upper - low)), (low + solver.upper) / 2)
        wanted, growth = _degrees(solver, lowest, last, edge)
        degree = degree or min(wanted, growth)
        without = solver.left_out(fixed, low, last, edge, RETURN_LIMIT)
        fresh = space.expand(solver.filtered(fresh, degree, edge, without=without))
        if degree >= ENOUGH * wanted and space.size < count + width:
            continue
        values, rotation = np.linalg.eigh((space.gram + space.gram.T) / 2)
        if values[-1] > solver.upper:  # the Lanczos bound was not one
            solver.upper = solver.bound
        first = min(count, space.size)
        solver.block = space.ritz(rotation[:, :first])
        solver.values = values
        solver.residuals = solver.residual_norms(solver.block, values[:first])
        if not np.isfinite(solver.residuals).all():
            raise SpectrumError("Chebyshev filter overflowed")
        low = float(values[0])
        closed = solver.residuals <= CAPTURED * solver.scale
        lowest = float(values[:first][~closed].min(initial=last))
        captured = np.flatnonzero(closed & (values[:first] < lowest))
        fixed = solver.block[:, torch.as_tensor(captured, device=solver.device)]
        target = solver.target(count) if first == count else 0.0
        done = solver.residuals <= target
        if largest_cluster(values[:first][done], CLUSTER_TOLERANCE * target) >= width:
            return None
        if done.all():
            # Some pairs beyond those wanted make the check of the count shorter.
            more = min(space.size, count + max(16, count // 2))
            solver.block, solver.values = space.ritz(rotation[:, :more]), values[:more]
            solver.residuals = solver.residual_norms(solver.block, solver.values)
            return count
        if restarts > RESTARTS or solver.work > WORK_LIMIT:
            raise SpectrumError(
                f"Chebyshev-Krylov: residual {solver.residuals.max():.1e} (wanted {target:.1e}) "
                f"after {solver.work} products"
            )
        full = space.size + width > capacity
        if full:
            restarts += 1
            last, edge = float(values[count - 1]), float(values[min(wider, space.size) - 1])
        wanted, growth = _degrees(solver, lowest, last, edge)
        if full or (degree < ENOUGH * wanted and min(wanted, growth) > CHANGE * degree):
            degree = 0
            fresh = space.restart(values, rotation, np.flatnonzero(closed), count + width, width)


def _degrees(solver: ChebyshevFilter, lowest: float, last: float, edge: float) -> tuple[int, int]:
    """The degree wanted for the last eigenvalue, and the largest that rounding allows for the lowest."""
    rate = solver.rate(lowest, edge)
    wanted = RISE / max(solver.rate(min(last, edge), edge), FLATTEST * rate, 1e-12)
    growth = math.log(GROWTH_LIMIT) / max(rate, 1e-12)
    return int(max(2, min(wanted, DEGREE_LIMIT))), int(max(2, min(growth, DEGREE_LIMIT)))


class _Space:
    """An orthonormal basis V [n, size] that grows, and VᵀHV on the host.

    Stored as rows of Vᵀ: the part in use lies together, and the rest of the capacity is not touched.
    """

    def __init__(self, solver: ChebyshevFilter, capacity: int) -> None:
        self.solver, self.size = solver, 0
        self.rows = torch.empty(capacity, solver.operator.n, dtype=torch.float64, device=solver.device)
        self.gram = np.zeros((0, 0))
        self.drawn = 0

    def basis(self) -> Tensor:
        """V, a view."""
        return self.rows[: self.size].T

    def ritz(self, rotation: np.ndarray) -> Tensor:
        """V times a matrix [size, m], row-major."""
        return (self.basis() @ torch.as_tensor(rotation, device=self.solver.device)).contiguous()

    def expand(self, block: Tensor) -> Tensor:
        """Add what is new in the block; return it, orthonormal."""
        solver, basis, width = self.solver, self.basis(), block.shape[1]
        before = solver.norms(block)
        solver.project_out_(block, solver.zero_modes, basis)
        lost = ~(solver.norms(block) > BREAKDOWN * before)
        if bool(lost.any()):  # an invariant subspace: go on elsewhere
            self.drawn += 1
            block = torch.where(lost, solver.normal(width, stream=100 + self.drawn), block)
        block = solver.orthonormal(block, basis).contiguous()
        image = solver.matrix @ block
        solver.work += 1
        # One copy to the host: the new columns of VᵀHV.
        column = torch.cat([solver.dots(basis, image), solver.dots(block, image)]).cpu().numpy()
        self.gram = np.block([[self.gram, column[: self.size]], [column[: self.size].T, column[self.size :]]])
        self.rows[self.size : self.size + width] = block.T
        self.size += width
        return block

    def restart(self, values: np.ndarray, rotation: np.ndarray, closed: np.ndarray, first: int, width: int) -> Tensor:
        """Keep the captured Ritz vectors and a random mix of the others among the ``first``, the new start.

        Whatever else was kept would have to be filtered too: the space grown from the mix would be that of a matrix
        projected onto the complement, with other eigenvectors.
        """
        others = np.setdiff1d(np.arange(min(first, self.size)), closed)
        self.drawn += 1
        rng = np.random.default_rng([self.solver.seed, self.drawn])
        mix = self.ritz(rotation[:, others] @ rng.standard_normal((others.size, width)))
        self.rows[: closed.size] = self.ritz(rotation[:, closed]).T
        self.size, self.gram = closed.size, np.diag(values[closed])
        return self.expand(mix)
