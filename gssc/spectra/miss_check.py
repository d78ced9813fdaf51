"""A check that no eigenvalue was missed: what a filtered random block, deflated by what was found, would show."""

import math
from collections.abc import Callable

import numpy as np
import torch

from gssc.spectra.chebyshev_filter import ChebyshevFilter

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
GROWTH_LIMIT = 1e8
RETURN_LIMIT = 1e12


class MissCheck(ChebyshevFilter):
    """The Ritz pairs of a solver, and the check of their count.

    ``extend`` is what a solver may leave to improve them further, at the cost of ``extension_degree`` products; it
    returns False when it is at its end.
    """

    extend: Callable[[], bool] | None = None
    extension_degree = 0

    def miss_probability(self, kept: int, sigma: float) -> float:
        r"""Probability bound that H has more than ``kept`` eigenvalues (besides the known) up to ``sigma``.

        Let V hold the kept pairs and those further Ritz pairs (θ, r) with small r/(θ - σ), Q = I - VVᵀ. If H had one
        more eigenvalue ≤ σ, then Q H Q on the complement of V would have one ≤ σ' = σ + Σ r²/(θ - σ) / (1 - Σ
        r²/(θ - σ)²) (Cauchy interlacing; the sums correct for the further pairs), with a unit eigenvector w, and a
        filtered Gaussian column y = p(QHQ) z would have ‖y‖ ≥ p(σ') |wᵀz|, wᵀz ~ N(0, 1). Seeing columns of norm
        ‖y_i‖ then has probability Π √(2/π) ‖y_i‖/p(σ') at most. The projection is repeated whenever the filter may have
        grown by CHECK_RETURN, which keeps rounding and residuals from growing back.
        """
        safe, raised, edge, degree = self._check_plan(kept, sigma)
        while self.extend is not None:
            # Better pairs above the gap are projected out too, and the gap that counts is the one above them: at best
            # the one above all of them.
            least = self._check_degree(raised, min(float(self.values[-1]), (raised + self.upper) / 2))
            if degree - least <= self.extension_degree or not self.extend():
                break
            safe, raised, edge, degree = self._check_plan(kept, sigma)
        self.extend = None  # it holds the memory of the solver
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
        sigma, speed = raised, self.rate(raised, edge)
        if speed <= 0.0 or degree > CHECK_LIMIT:
            return 1.0
        take = torch.as_tensor(np.flatnonzero(safe | (np.arange(self.values.size) < kept)), device=self.device)
        projected = self.block[:, take]
        without = self.left_out(projected, float(self.values.min(initial=sigma)), edge, edge, CHECK_RETURN)
        columns = self.filtered(self.normal(CHECK_COLUMNS, stream=3), degree, edge, without=without)
        for basis in (self.known, projected):
            columns = columns - basis @ (basis.T @ columns)
        columns = columns * math.exp(-float(np.logaddexp(degree * speed, -degree * speed) - math.log(2.0)))
        norms = torch.linalg.vector_norm(columns, dim=0).cpu().numpy()
        if not np.isfinite(norms).all():
            return 1.0
        return float(np.prod(np.minimum(1.0, math.sqrt(2.0 / math.pi) * norms)))

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
        return safe, raised, edge, self._check_degree(raised, edge)

    def _check_degree(self, raised: float, edge: float) -> int:
        """The degree at which σ' has grown enough."""
        speed = self.rate(raised, edge)
        # Without room between the two (a cluster at the end of the block) no degree suffices.
        return math.ceil(math.acosh(CHECK_GROWTH * math.sqrt(self.n)) / speed) if speed > 0.0 else CHECK_LIMIT + 1
