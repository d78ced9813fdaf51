"""Chebyshev-filtered block iteration: the smallest eigenpairs of a sparse symmetric matrix, in PyTorch, on any device.

The Krylov space of ``krylov.py`` comes first: it needs three to five times fewer products. :meth:`ChebyshevBlock.
iterate` filters a block of more columns than pairs wanted again and again, and sees every copy of an eigenvalue:
Rayleigh-Ritz improves the edge (the largest Ritz value of the block), the next degree is chosen from the growth rate
still needed, and converged columns are no longer filtered (soft locking: they stay in the Rayleigh-Ritz block). Nothing
is factorised, so that random graphs cost no more than grids, and memory is linear in n + E.
"""

import math

import numpy as np
import torch

from gssc.spectra.certificate import Pairs, SpectrumError
from gssc.spectra.chebyshev_filter import GROWTH_LIMIT, RETURN_LIMIT, ChebyshevFilter
from gssc.spectra.krylov import krylov

# While residuals exceed SINGLE_ABOVE · ‖H‖ the filter runs in float32 (half the memory traffic), with room for its
# rounding; Rayleigh-Ritz always runs in float64.
SINGLE_ABOVE = 1e-4
SINGLE_TARGET = 1e-6
SINGLE_GROWTH = 1e5
SINGLE_RETURN = 1e3
DEGREE_LIMIT = 1_500
WORK_LIMIT = 30_000
# So many random columns, each amplified below σ by this factor times sqrt(n).
CHECK_COLUMNS = 8
CHECK_GROWTH = 30.0
# A check of at most this degree is run at once; before a longer one the pairs above the gap are improved, by filters of
# at most the second degree, so often. For less the improvement costs as much as it saves.
CHECK_DEGREE = 1_500
REFINEMENT_DEGREE = 200
CHECK_REFINEMENTS = 6
CHECK_LIMIT = 30_000
# What was projected out may grow back by this much before it is projected out again.
CHECK_RETURN = 1e3


class ChebyshevBlock(ChebyshevFilter):
    """The smallest eigenpairs of a symmetric matrix, besides the zero modes; arguments as for `ChebyshevFilter`."""

    def solve(self, count: int, guard: int | None = None, method: str = "krylov") -> Pairs:
        """The ``count`` smallest pairs, by ``"krylov"`` or by ``"iterate"`` with ``guard`` columns more than pairs."""
        done = krylov(self, count) if method == "krylov" else None
        count = self.iterate(count, guard) if done is None else done
        vectors = self.block[:, :count]
        whole = torch.cat([self.zero_modes, vectors], dim=1)
        gram = self.dots(whole, whole) - torch.eye(whole.shape[1], dtype=torch.float64, device=self.device)
        return Pairs(self.values[:count].copy(), vectors, self.residuals[:count].copy(), float(gram.abs().max()))

    def iterate(self, count: int, guard: int | None = None) -> int:
        """Ritz pairs of a block of ``count + guard`` columns, of which the first ``count`` converged; their number.

        Raises SpectrumError when the work limit is reached before every residual is small enough.
        """
        guard = max(16, count // 2) if guard is None else guard
        columns = min(-(-(count + guard) // 8) * 8, self.n - self.zero_modes.shape[1])
        count = min(count, columns)
        low, (edge,) = self.spectral_edges([2 * columns])
        edge = min(max(edge, low + 1e-3 * (self.upper - low)), (low + self.upper) / 2)
        start = self.normal(columns, stream=2)
        self.project_out_(start, self.zero_modes)
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

    def miss_probability(self, kept: int, sigma: float) -> float:
        r"""Probability bound that H has more than ``kept`` eigenvalues (besides the zero modes) up to ``sigma``.

        Let V hold the kept pairs and those further Ritz pairs (θ, r) with small r/(θ - σ), Q = I - VVᵀ. If H had one
        more eigenvalue ≤ σ, then Q H Q on the complement of V would have one ≤ σ' = σ + Σ r²/(θ - σ) / (1 - Σ
        r²/(θ - σ)²) (Cauchy interlacing; the sums correct for the further pairs), with a unit eigenvector w, and a
        filtered Gaussian column y = p(QHQ) z would have ‖y‖ ≥ p(σ') |wᵀz|, wᵀz ~ N(0, 1). All of c columns then have
        norms up to t with probability (√(2/π) t/p(σ'))^c at most: t is the largest seen. (The product of what each
        would have alone is no such probability: moderately small factors make a tiny product by chance.) The projection
        is repeated whenever the filter may have grown by CHECK_RETURN, which keeps rounding and residuals from growing
        back.
        """
        safe, raised, edge, degree = self._check_plan(kept, sigma)
        for _ in range(CHECK_REFINEMENTS):
            unsafe = ~safe & (np.arange(safe.size) >= kept)
            if degree <= CHECK_DEGREE or unsafe.sum() < 2:
                break
            rate = self.rate(float(self.values[unsafe][0]), float(self.values[-1]))
            growth = int(min(math.log(GROWTH_LIMIT) / max(rate, 1e-12), REFINEMENT_DEGREE))
            self.refine(unsafe, max(4, growth), float(self.values[-1]), RETURN_LIMIT)
            before = degree
            safe, raised, edge, degree = self._check_plan(kept, sigma)
            if degree > 0.7 * before:
                break
        if degree > CHECK_LIMIT:
            return 1.0
        speed = self.rate(raised, edge)
        take = torch.as_tensor(np.flatnonzero(safe | (np.arange(self.values.size) < kept)), device=self.device)
        projected = self.block[:, take]
        without = self.left_out(projected, float(self.values.min(initial=raised)), edge, edge, CHECK_RETURN)
        columns = self.filtered(self.normal(CHECK_COLUMNS, stream=3), degree, edge, without=without)
        self.project_out_(columns, self.zero_modes, projected)
        columns = columns * math.exp(-float(np.logaddexp(degree * speed, -degree * speed) - math.log(2.0)))
        norms = self.norms(columns).cpu().numpy()
        if not np.isfinite(norms).all():
            return 1.0
        return min(1.0, math.sqrt(2.0 / math.pi) * float(norms.max())) ** CHECK_COLUMNS

    def _check_plan(self, kept: int, sigma: float) -> tuple[np.ndarray, float, float, int]:
        """Which pairs above σ are well enough known to be projected out [b], σ', the filter's edge and its degree."""
        distance = self.values - sigma
        safe = np.arange(self.values.size) >= kept
        with np.errstate(divide="ignore", invalid="ignore"):
            safe &= (distance > 0) & (self.residuals <= 0.05 * distance / math.sqrt(max(1, self.values.size)))
        slip = float((self.residuals[safe] ** 2 / distance[safe]).sum())
        turn = float((self.residuals[safe] ** 2 / distance[safe] ** 2).sum())
        raised = sigma + slip / (1.0 - turn)
        rest = self.values[kept:][~safe[kept:]]
        edge = float(rest.min()) if rest.size else float(self.values[-1]) if self.values.size > kept else math.inf
        edge = min(edge, (raised + self.upper) / 2)
        speed = self.rate(raised, edge)
        # Without room between the two (a cluster at the end of the block) no degree suffices.
        degree = math.ceil(math.acosh(CHECK_GROWTH * math.sqrt(self.n)) / speed) if speed > 0.0 else CHECK_LIMIT + 1
        return safe, raised, edge, degree
