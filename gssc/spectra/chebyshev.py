"""Chebyshev-filtered block iteration: the smallest eigenpairs of a sparse symmetric matrix, in PyTorch, on any device.

Two ways to use the filter of ``chebyshev_filter.py``. :func:`~gssc.spectra.krylov.krylov` builds a Krylov space of the
filtered matrix from a few columns and comes first: it needs three to five times fewer products. :meth:`ChebyshevBlock.
iterate` filters a block of more columns than pairs wanted again and again, and is the one that sees every copy of an
eigenvalue: Rayleigh-Ritz improves the edge (the largest Ritz value of the block), the next degree is chosen from the
growth rate still needed, and converged columns are no longer filtered (soft locking: they stay in the Rayleigh-Ritz
block). Known zero modes are projected out in both. Nothing is factorised, so that random graphs cost no more than
grids, and memory is linear in n + E.
"""

import math

import numpy as np
import torch

from gssc.spectra.certificate import Pairs, SpectrumError
from gssc.spectra.krylov import krylov
from gssc.spectra.miss_check import GROWTH_LIMIT, RETURN_LIMIT, MissCheck
from gssc.spectra.spectral_density import spectral_edges

# While residuals exceed SINGLE_ABOVE · ‖H‖ the filter runs in float32 (half the memory traffic), with room for its
# rounding; Rayleigh-Ritz always runs in float64.
SINGLE_ABOVE = 1e-4
SINGLE_TARGET = 1e-6
SINGLE_GROWTH = 1e5
SINGLE_RETURN = 1e3
DEGREE_LIMIT = 1_500
WORK_LIMIT = 30_000


class ChebyshevBlock(MissCheck):
    """The smallest eigenpairs of a symmetric matrix, orthogonal to known ones; arguments as for `ChebyshevFilter`."""

    def solve(self, count: int, guard: int | None = None, method: str = "krylov") -> Pairs:
        """The ``count`` smallest pairs, by ``"krylov"`` or by ``"iterate"`` with ``guard`` columns more than pairs."""
        done = krylov(self, count) if method == "krylov" else None
        count = self.iterate(count, guard) if done is None else done
        vectors = self.block[:, :count]
        whole = torch.cat([self.known, vectors], dim=1)
        gram = whole.T @ whole - torch.eye(whole.shape[1], dtype=torch.float64, device=self.device)
        return Pairs(self.values[:count].copy(), vectors, self.residuals[:count].copy(), float(gram.abs().max()))

    def iterate(self, count: int, guard: int | None = None) -> int:
        """Ritz pairs of a block of ``count + guard`` columns, of which the first ``count`` converged; their number.

        Raises SpectrumError when the work limit is reached before every residual is small enough.
        """
        guard = max(16, count // 2) if guard is None else guard
        columns = min(-(-(count + guard) // 8) * 8, self.n - self.known.shape[1])
        count = min(count, columns)
        low, (edge,) = spectral_edges(self, [2 * columns])
        edge = min(max(edge, low + 1e-3 * (self.upper - low)), (low + self.upper) / 2)
        start = self.normal(columns, stream=2)
        start -= self.known @ (self.known.T @ start)
        degree = max(2, int(min(math.log(SINGLE_GROWTH) / self.rate(low, edge), DEGREE_LIMIT)))
        nothing = start[:, :0]
        without = self.left_out(nothing, low, low, edge, SINGLE_RETURN)
        self.rayleigh_ritz(self.orthonormal(self.filtered(start, degree, edge, True, without), nothing))
        margin, worst, promised = 0.0, math.inf, 0.0
        while True:
            target = self.target(count)
            if self.values[-1] > (edge + self.upper) / 2:  # the Lanczos bound was not one
                self.upper = self.bound
            locked = np.zeros(columns, dtype=bool)
            locked[:count] = self.residuals[:count] <= target
            if locked[:count].all():
                return count
            if self.work > WORK_LIMIT:
                raise SpectrumError(
                    f"Chebyshev iteration: residual {self.residuals[:count].max():.1e} (wanted {target:.1e}) "
                    f"after {self.work} products"
                )
            needed = float(self.residuals[:count].max())
            # Less progress than promised means that the block ends inside a cluster: move the edge beyond it.
            slow = math.log(worst / needed) < 0.2 * promised
            margin = max(0.05, 4.0 * margin) if slow else 0.0
            worst = needed
            lowest, highest = float(self.values[~locked][0]), float(self.values[-1])
            last = float(self.values[:count][~locked[:count]][-1])
            # The width of the upper half of the block: a few low outliers say nothing about its end.
            width = highest - float(self.values[count // 2])
            if highest - last <= 0.02 * width:
                margin, width = max(margin, 0.1), max(width, 1e-2 * (self.upper - highest))
            edge = min(highest + margin * width, (highest + self.upper) / 2)
            single = needed > SINGLE_ABOVE * self.scale
            goal = max(target, SINGLE_TARGET * self.scale) if single else target
            wanted = math.log(10.0 * needed / goal) / max(self.rate(last, edge), 1e-12)
            growth = math.log(SINGLE_GROWTH if single else GROWTH_LIMIT) / max(self.rate(lowest, edge), 1e-12)
            degree = int(max(4, min(wanted, growth, DEGREE_LIMIT)))
            promised = min(degree * self.rate(last, edge), math.log(needed / goal))
            self.refine(~locked, degree, edge, SINGLE_RETURN if single else RETURN_LIMIT, single)

    def load(self, pairs: Pairs) -> None:
        """Take over pairs of another solver, to check them."""
        self.block = torch.as_tensor(pairs.vectors, dtype=torch.float64, device=self.device)
        self.values, self.residuals = pairs.values, pairs.residuals
