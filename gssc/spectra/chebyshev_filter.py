"""The Chebyshev filter of a sparse symmetric matrix, on any device, and what every solver built on it needs.

T_m((H - c)/e), the Chebyshev polynomial on an interval [edge, upper] of centre c and half width e, stays within ±1
there and grows like cosh(m·acosh((c - λ)/e)) below it. One application costs m sparse products and no other pass over
the block: the recurrence T_{m+1} = 2 (H - c)/e T_m - T_{m-1} overwrites T_{m-1}.

Where to put the edge is told by stochastic Lanczos quadrature. A Lanczos run of s steps from a random unit vector z
yields nodes θ_i and weights w_i, Σ w_i f(θ_i) ≈ zᵀ f(H) z, hence so many eigenvalues below λ: N(λ) ≈ n Σ_{θ_i ≤ λ} w_i,
averaged over columns z; near an end of the spectrum nodes lie as close as 1/s² of its width.
"""

import math

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
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
# Of Lanczos quadrature: columns, steps, and lowest nodes taken of each column.
COLUMNS = 8
FIRST_STEPS = 32
STEPS_LIMIT = 512
NODES = 24
# Steps are doubled until so many nodes per column lie below the smallest value asked for, and so many between its half
# and the largest.
NODES_BELOW = 2.0
NODES_NEAR = 1.0
# Eigenvectors [n, m], and after how many steps of a recurrence they must be projected out again.
LeftOut = tuple[tuple[Tensor, int], ...]


class ChebyshevFilter:
    """Filter, orthonormal bases and Rayleigh-Ritz for a symmetric matrix H [n, n], away from known eigenvectors.

    ``operator`` is H, on the device where to compute, and ``upper`` a guaranteed bound of its spectrum; ``zero_modes``
    [n, z] are orthonormal eigenvectors of eigenvalue zero known beforehand, to be left out; ``seed`` seeds every random
    block. ``block`` [n, b], ``values`` [b] and ``residuals`` [b] are the Ritz pairs so far, ``work`` counts products.
    """

    def __init__(self, operator: SparseOperator, upper: float, zero_modes: Tensor | None = None, seed: int = 0) -> None:
        self.operator, self.device, self.n = operator, operator.device, operator.nodes
        self.upper = upper * (1.0 + 1e-12) + 1e-300
        self.bound = self.upper
        self.scale = max(abs(upper), 1e-300)
        self.matrix = Shifted(self.operator)
        self.dots, self.norms = operator.dots, operator.norms
        self.block = torch.zeros(operator.n, 0, dtype=torch.float64, device=self.device)
        self.zero_modes = self.block if zero_modes is None else zero_modes.to(self.device)
        self.values = self.residuals = np.zeros(0)
        self.seed, self.work = seed, 0

    def project_out_(self, block: Tensor, *bases: Tensor) -> None:
        """Take from the columns of a block, in place, what lies along each of these orthonormal bases [n, m]."""
        for basis in bases:
            if basis.shape[1]:
                block -= basis @ self.dots(basis, block)

    def normal(self, columns: int, stream: int) -> Tensor:
        """A Gaussian block [n, columns], the same for the same seed and stream."""
        generator = torch.Generator(device=self.device).manual_seed(
            1_000_003 * self.seed + stream + self.operator.stream
        )
        return torch.randn(self.operator.n, columns, dtype=torch.float64, device=self.device, generator=generator)

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
        self.project_out_(before, *(basis for basis, _ in removed))
        now = scaled @ before
        for step in range(1, degree):
            scaled.step(now, before, 2.0, -1.0)
            before, now = now, before
            for basis, every in removed:
                if step % every == 0:
                    self.project_out_(before, basis)
                    self.project_out_(now, basis)
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

    def spectral_edges(self, counts: list[int]) -> tuple[float, list[float]]:
        """The lowest eigenvalue besides the zero modes, as Lanczos sees it, and values below which so many lie.

        Also tightens ``upper`` to the largest Ritz value plus its residual bound, where that is lower.
        """
        free = self.n - self.zero_modes.shape[1]
        most = min(STEPS_LIMIT, free - 1)
        vector = self.normal(COLUMNS, stream=1)
        self.project_out_(vector, self.zero_modes)
        vector /= self.norms(vector)
        before = torch.zeros_like(vector)
        # Written in place: small results kept between large temporaries would scatter the heap.
        alphas, betas = torch.zeros(2, most, COLUMNS, dtype=torch.float64, device=self.device)
        done, steps = 0, min(FIRST_STEPS, most)
        while True:
            for step in range(done, steps):
                if step:
                    before *= -betas[step - 1]
                image = self.matrix.step(vector, before, 1.0, 1.0)
                alphas[step] = self.operator.sum(torch.linalg.vecdot(vector, image, dim=0))
                image.addcmul_(vector, alphas[step], value=-1.0)
                self.project_out_(image, self.zero_modes)
                betas[step] = self.norms(image)
                image /= betas[step].clamp_min(1e-300)
                before, vector = vector, image
            self.work += steps - done
            done = steps
            diagonal, off = alphas[:done].cpu().numpy(), betas[:done].cpu().numpy()
            pairs = [_quadrature(diagonal[:, i], off[:, i], self.scale) for i in range(COLUMNS)]
            theta, weight = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
            order = np.argsort(theta, kind="stable")
            theta, weight = theta[order], weight[order] * (free / COLUMNS)
            mass = np.cumsum(weight) - weight / 2
            self.upper = min(self.upper, _upper(diagonal[:FIRST_STEPS], off[:FIRST_STEPS], self.scale))
            at = np.minimum(np.searchsorted(mass, counts), theta.size - 1)
            # A column that ends early has found an invariant subspace: more steps add nothing.
            short = any(nodes.size < min(NODES, done) for nodes, _ in pairs)
            # Outliers attract nodes of no weight: those around the values asked for are counted by themselves.
            near = int(np.searchsorted(mass, max(counts)) - np.searchsorted(mass, min(counts) / 2))
            if short or done >= most or (at.min() >= NODES_BELOW * COLUMNS and near >= NODES_NEAR * COLUMNS):
                return float(theta[0]), [float(theta[i]) for i in at]
            steps = min(2 * done, most)

    def orthonormal(self, block: Tensor, against: Tensor) -> Tensor:
        """An orthonormal basis of the block, orthogonal to ``against`` and to the zero modes."""
        block = block / self.norms(block).clamp_min(1e-300)
        for _ in range(2):
            self.project_out_(block, self.zero_modes, against)
            factor, info = torch.linalg.cholesky_ex(self.dots(block, block))
            if int(info) == 0:
                eye = torch.eye(block.shape[1], dtype=block.dtype, device=self.device)
                block = block @ torch.linalg.solve_triangular(factor.T, eye, upper=True)
            else:  # nearly dependent columns: slower, but always orthonormal
                block = self.operator.basis(block)
        return block

    def rayleigh_ritz(self, basis: Tensor) -> None:
        """Make the Ritz pairs of an orthonormal basis [n, b] the block."""
        image = self.matrix @ basis
        self.work += 1
        gram = self.dots(basis, image).cpu().numpy()
        values, rotation = np.linalg.eigh((gram + gram.T) / 2)
        turn = torch.as_tensor(rotation, device=self.device)
        theta = torch.as_tensor(values, device=self.device)
        self.block = basis @ turn
        self.residuals = self.norms(image @ turn - self.block * theta).cpu().numpy()
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
        return self.norms(gap).cpu().numpy()

    def target(self, count: int) -> float:
        """The residual that the first ``count`` pairs must reach.

        Spacing is the mean distance of their values, or of the upper half of them where that is smaller; none where
        both are one cluster away from zero, which is no tight spectrum.
        """
        values = self.values[:count]
        least = 1e-6 * float(np.abs(values).max())
        widths = [(float(values[-1] - values[first]), count - first) for first in (0, count // 2)]
        spacing = min((width / number for width, number in widths if width > least), default=math.inf)
        target = min(RESIDUAL_TARGET, RESIDUAL_PER_NORM * self.scale, RESIDUAL_PER_SPACING * spacing)
        return max(target, ROUNDING_FLOOR * self.scale)


def _ends_at(off: np.ndarray, scale: float) -> int:
    """Steps before an invariant subspace was reached: later coefficients are noise."""
    small = np.flatnonzero(off <= 1e-10 * scale)
    return int(small[0]) + 1 if small.size else off.size


def _quadrature(diagonal: np.ndarray, off: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The lowest nodes of one column, and their weights."""
    steps = _ends_at(off, scale)
    last = min(NODES, steps) - 1
    nodes, rotation = eigh_tridiagonal(diagonal[:steps], off[: steps - 1], select="i", select_range=(0, last))
    return nodes, rotation[0] ** 2


def _upper(diagonal: np.ndarray, off: np.ndarray, scale: float) -> float:
    """The largest Ritz value of all columns plus its residual; infinite where a column ended early."""
    largest = []
    for alpha, beta in zip(diagonal.T, off.T, strict=True):
        if _ends_at(beta, scale) < beta.size:
            return float("inf")
        last = alpha.size - 1
        theta, rotation = eigh_tridiagonal(alpha, beta[:-1], select="i", select_range=(last, last))
        largest.append(float(theta[0] + abs(beta[-1] * rotation[-1, 0])))
    return max(largest) + 1e-3 * scale
