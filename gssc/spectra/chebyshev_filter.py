"""The Chebyshev filter of a sparse symmetric matrix, on any device, and what every solver built on it needs.

T_m((H - c)/e), the Chebyshev polynomial on an interval [edge, upper] of centre c and half width e, stays within ±1
there and grows like cosh(m·acosh((c - λ)/e)) below it. One application costs m sparse products and no other pass over
the block: the recurrence T_{m+1} = 2 (H - c)/e T_m - T_{m-1} overwrites T_{m-1}.
"""

import math

import numpy as np
import torch
from torch import Tensor

from gssc.spectra.certificate import SpectrumError
from gssc.spectra.sparse_operator import Shifted, SparseOperator

# Solvers aim at these residuals: absolute, relative to ‖H‖, and to the mean spacing of the eigenvalues wanted, so that
# the cluster tolerance (ten times the residual) stays far below it; and no lower than rounding allows.
RESIDUAL_TARGET = 2e-6
RESIDUAL_PER_NORM = 1e-6
RESIDUAL_PER_SPACING = 1e-3
ROUNDING_FLOOR = 5e-12
# How far a filter may amplify before rounding shows, and what was projected out may grow back until it is again.
GROWTH_LIMIT = 1e8
RETURN_LIMIT = 1e12
# Eigenvectors [n, m], and after how many steps of a recurrence they must be projected out again.
LeftOut = tuple[tuple[Tensor, int], ...]


def project_out_(block: Tensor, *bases: Tensor) -> None:
    """Take from the columns of a block, in place, what lies along each of these orthonormal bases [n, m]."""
    for basis in bases:
        if basis.shape[1]:
            block -= basis @ (basis.T @ block)


class ChebyshevFilter:
    """Filter, orthonormal bases and Rayleigh-Ritz for a symmetric matrix H [n, n], away from known eigenvectors.

    Args:
        operator: H, on the device where to compute.
        upper: A guaranteed upper bound of its spectrum.
        zero_modes: Eigenvectors of eigenvalue zero known beforehand, [n, z], orthonormal, to be left out.
        seed: Seeds every random block; the global generators are never used.

    ``block`` [n, b], ``values`` [b] and ``residuals`` [b] hold the Ritz pairs known so far, ``work`` counts products.
    """

    def __init__(self, operator: SparseOperator, upper: float, zero_modes: Tensor | None = None, seed: int = 0) -> None:
        self.operator, self.device, self.n = operator, operator.device, operator.n
        self.upper = upper * (1.0 + 1e-12) + 1e-300
        self.bound = self.upper
        self.scale = max(abs(upper), 1e-300)
        self.matrix = Shifted(self.operator)
        self.block = torch.zeros(self.n, 0, dtype=torch.float64, device=self.device)
        self.zero_modes = self.block if zero_modes is None else zero_modes.to(self.device)
        self.values = self.residuals = np.zeros(0)
        self.seed, self.work = seed, 0

    def normal(self, columns: int, stream: int) -> Tensor:
        """A Gaussian block [n, columns], the same for the same seed and stream."""
        generator = torch.Generator(device=self.device).manual_seed(1_000_003 * self.seed + stream)
        return torch.randn(self.n, columns, dtype=torch.float64, device=self.device, generator=generator)

    def filtered(self, block: Tensor, degree: int, edge: float, single: bool = False, without: LeftOut = ()) -> Tensor:
        """T_degree((H - c)/e) block, for the interval [edge, upper]; degree ≥ 1; computed in float32 if ``single``.

        ``without`` lists eigenvectors [n, m] that are projected out, each with the number of steps after which rounding
        has brought them back and they must be projected out again; in between the recurrence does not see them.
        """
        self.work += degree
        dtype = torch.float32 if single else torch.float64
        removed = [(basis.to(dtype), every) for basis, every in without if basis.shape[1]]
        scaled = Shifted(self.operator, (self.upper + edge) / 2, (self.upper - edge) / 2, dtype)
        # A copy, as the recurrence overwrites it; row-major, as the product reads whole rows of it.
        before = block.to(dtype, memory_format=torch.contiguous_format, copy=True)
        project_out_(before, *(basis for basis, _ in removed))
        now = scaled @ before
        for step in range(1, degree):
            scaled.step(now, before, 2.0, -1.0)
            before, now = now, before
            for basis, every in removed:
                if step % every == 0:
                    project_out_(before, basis)
                    project_out_(now, basis)
        return now.to(torch.float64)

    def rate(self, value: float, edge: float) -> float:
        """Growth of the filter per degree, acosh((c - λ)/e), at a value λ < edge."""
        return math.acosh(max(1.0, 1.0 + 2.0 * (edge - value) / (self.upper - edge)))

    def left_out(self, fixed: Tensor, first: float, lowest: float, edge: float, limit: float) -> LeftOut:
        """The zero modes and ``fixed`` eigenvectors [n, m], whose eigenvalues begin with ``first``, for `filtered`.

        Each with the steps in which it grows, after it was projected out, by ``limit`` over the ``lowest`` value left.
        """
        faster = (self.rate(min(value, lowest), edge) - self.rate(lowest, edge) for value in (0.0, first))
        steps = [max(1, int(min(math.log(limit) / max(rate, 1e-12), 1e9))) for rate in faster]
        return (self.zero_modes, steps[0]), (fixed, steps[1])

    def orthonormal(self, block: Tensor, against: Tensor) -> Tensor:
        """An orthonormal basis of the block, orthogonal to ``against`` and to the zero modes."""
        block = block / torch.linalg.vector_norm(block, dim=0).clamp_min(1e-300)
        for _ in range(2):
            project_out_(block, self.zero_modes, against)
            factor, info = torch.linalg.cholesky_ex(block.T @ block)
            if int(info) == 0:
                eye = torch.eye(block.shape[1], dtype=block.dtype, device=self.device)
                block = block @ torch.linalg.solve_triangular(factor.T, eye, upper=True)
            else:  # nearly dependent columns: slower, but always orthonormal
                block = torch.linalg.qr(block)[0]
        return block

    def rayleigh_ritz(self, basis: Tensor) -> None:
        """Make the Ritz pairs of an orthonormal basis [n, b] the block."""
        image = self.matrix @ basis
        self.work += 1
        gram = (basis.T @ image).cpu().numpy()
        values, rotation = np.linalg.eigh((gram + gram.T) / 2)
        turn = torch.as_tensor(rotation, device=self.device)
        theta = torch.as_tensor(values, device=self.device)
        self.block = basis @ turn
        self.residuals = torch.linalg.vector_norm(image @ turn - self.block * theta, dim=0).cpu().numpy()
        self.values = values
        if not (np.isfinite(values).all() and np.isfinite(self.residuals).all()):
            raise SpectrumError("Chebyshev filter overflowed")

    def refine(self, active: np.ndarray, degree: int, edge: float, limit: float, single: bool = False) -> None:
        """Filter the ``active`` [b] columns of the block once more, the others left out, and mix all of them."""
        lowest = float(self.values[active][0])
        first = float(self.values[~active].min(initial=lowest))
        pick, keep = (torch.as_tensor(np.flatnonzero(which), device=self.device) for which in (active, ~active))
        fixed = self.block[:, keep]
        without = self.left_out(fixed, first, lowest, edge, limit)
        filtered = self.filtered(self.block[:, pick], degree, edge, single, without)
        self.rayleigh_ritz(torch.cat([fixed, self.orthonormal(filtered, fixed)], dim=1))

    def residual_norms(self, vectors: Tensor, values: np.ndarray) -> np.ndarray:
        """‖H p - θ p‖ of every pair."""
        self.work += 1
        gap = (self.matrix @ vectors).addcmul_(vectors, torch.as_tensor(values, device=self.device), value=-1.0)
        return torch.linalg.vector_norm(gap, dim=0).cpu().numpy()

    def target(self, count: int) -> float:
        """The residual that the first ``count`` pairs must reach."""
        target = min(RESIDUAL_TARGET, RESIDUAL_PER_NORM * self.scale, RESIDUAL_PER_SPACING * self._spacing(count))
        return max(target, ROUNDING_FLOOR * self.scale)

    def _spacing(self, count: int) -> float:
        """Mean distance of the first ``count`` values, or of their upper half where that is smaller.

        Infinite where both are one cluster away from zero, which is no tight spectrum.
        """
        values = self.values[:count]
        least = 1e-6 * float(np.abs(values).max())
        widths = [(float(values[-1] - values[first]), count - first) for first in (0, count // 2)]
        return min((width / number for width, number in widths if width > least), default=math.inf)
