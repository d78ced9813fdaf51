"""Chebyshev-filtered block iteration: the smallest eigenpairs of a sparse symmetric matrix, in PyTorch, on any device.

A block X [n, b] of more columns than pairs wanted is multiplied by T_m((H - c)/e), the Chebyshev polynomial that stays
within ±1 on [a, upper] and grows like cosh(m·acosh((c - λ)/e)) below a, c and e being the interval's centre and half
width. Rayleigh-Ritz on the result improves a (the largest Ritz value of the block) and the next degree is chosen from
the growth rate still needed. Converged columns are no longer filtered (soft locking: they stay in the Rayleigh-Ritz
block), and known zero modes are projected out. The work is a few hundred sparse products with the block; nothing
is factorised, so that random graphs cost no more than grids, and memory is linear in n + E.

The same filter checks that nothing was missed, see :meth:`ChebyshevBlock.miss_probability`.
"""

import math
import warnings

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.spectra.certificate import Pairs, SpectrumError

# The solver aims at these residuals: absolute, relative to ‖H‖, and to the mean spacing of the eigenvalues wanted, so
# that the cluster tolerance (ten times the residual) stays far below it; and no lower than rounding allows.
RESIDUAL_TARGET = 2e-6
RESIDUAL_PER_NORM = 1e-6
RESIDUAL_PER_SPACING = 1e-3
ROUNDING_FLOOR = 5e-12
# A filter may amplify the lowest column by this much over the highest before the block must be orthogonalised again,
# and what was projected out, which rounding brings back, by this much over the rest before it must be again.
GROWTH_LIMIT = 1e8
RETURN_LIMIT = 1e12
# While residuals exceed SINGLE_ABOVE · ‖H‖ the filter runs in float32 (half the memory traffic), with room for its
# rounding; Rayleigh-Ritz always runs in float64.
SINGLE_ABOVE = 1e-4
SINGLE_TARGET = 1e-6
SINGLE_GROWTH = 1e5
SINGLE_RETURN = 1e3
DEGREE_LIMIT = 1_500
WORK_LIMIT = 30_000
LANCZOS_STEPS = 30
# The check: so many random columns, each amplified below σ by this factor times sqrt(n).
CHECK_COLUMNS = 8
CHECK_GROWTH = 30.0
# A check of at most this degree is run at once; before a longer one the pairs above the gap are improved, so often.
CHECK_DEGREE = 200
CHECK_REFINEMENTS = 6
CHECK_RETURN = 1e3


class ChebyshevBlock:
    """The smallest eigenpairs of symmetric ``matrix`` H [n, n], orthogonal to ``known`` [n, z] (orthonormal, exact).

    Args:
        matrix: The operator, float64.
        upper: A guaranteed upper bound of its spectrum.
        known: Eigenvectors of eigenvalue zero known beforehand, to be left out.
        device: Where to compute, "cpu" or "cuda".
        seed: Seeds the start block and the check; the global generators are never used.
    """

    def __init__(
        self, matrix: sp.csr_array, upper: float, known: np.ndarray | None = None, device: str = "cpu", seed: int = 0
    ) -> None:
        self.device = torch.device(device)
        self.n = int(matrix.shape[0])
        self.upper = upper * (1.0 + 1e-12) + 1e-300
        self.scale = max(abs(upper), 1e-300)
        index = torch.int32 if matrix.nnz < 2**31 else torch.int64
        self.crow = torch.as_tensor(matrix.indptr, device=self.device).to(index)
        self.col = torch.as_tensor(matrix.indices, device=self.device).to(index)
        self.weight = torch.as_tensor(matrix.data, dtype=torch.float64, device=self.device)
        rows = torch.repeat_interleave(
            torch.arange(self.n, dtype=index, device=self.device), self.crow.diff(), output_size=self.col.numel()
        )
        self.diagonal = (rows == self.col).nonzero().squeeze(1)
        # Where the whole diagonal is stored the shift by c goes into the values and costs nothing.
        self.full_diagonal = self.diagonal.numel() == self.n
        self.matrix = self._csr(self.weight)
        self.known = torch.zeros(self.n, 0, dtype=torch.float64, device=self.device)
        if known is not None:
            self.known = torch.as_tensor(known, dtype=torch.float64, device=self.device)
        self.seed = seed
        self.block = torch.zeros(self.n, 0, dtype=torch.float64, device=self.device)
        self.values = np.zeros(0)
        self.residuals = np.zeros(0)
        self.work = 0

    def _csr(self, weight: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
            # Said by torch 2.11 although the choice is explicit.
            warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
            return torch.sparse_csr_tensor(self.crow, self.col, weight, size=(self.n, self.n), check_invariants=False)

    def _normal(self, columns: int, stream: int) -> Tensor:
        generator = torch.Generator(device=self.device).manual_seed(1_000_003 * self.seed + stream)
        return torch.randn(self.n, columns, dtype=torch.float64, device=self.device, generator=generator)

    def filtered(
        self,
        block: Tensor,
        degree: int,
        edge: float,
        single: bool = False,
        without: tuple[tuple[Tensor, int], ...] = (),
    ) -> Tensor:
        """T_degree((H - c)/e) block, for the interval [edge, upper]; degree ≥ 1; computed in float32 if ``single``.

        ``without`` lists eigenvectors [n, m] that are projected out, each with the number of steps after which rounding
        has brought them back and they must be projected out again; in between the recurrence does not see them.
        """
        centre, half = (self.upper + edge) / 2, (self.upper - edge) / 2
        self.work += degree
        dtype = torch.float32 if single else torch.float64
        removed = [(basis.to(dtype), every) for basis, every in without if basis.shape[1]]
        weight = self.weight / half
        if self.full_diagonal:
            weight[self.diagonal] -= centre / half
            centre = 0.0
        scaled = self._csr(weight.to(dtype))
        before = block.to(dtype)
        for basis, _ in removed:
            before = before - basis @ (basis.T @ before)
        now = scaled @ before
        if centre:
            now -= (centre / half) * before
        for step in range(1, degree):
            following = torch.addmm(before, scaled, now, beta=-1.0, alpha=2.0)
            if centre:
                following.sub_(now, alpha=2.0 * centre / half)
            before, now = now, following
            for basis, every in removed:
                if step % every == 0:
                    before = before - basis @ (basis.T @ before)
                    now = now - basis @ (basis.T @ now)
        return now.to(torch.float64)

    def rate(self, value: float, edge: float) -> float:
        """Growth of the filter per degree, acosh((c - λ)/e), at a value λ < edge."""
        return math.acosh(max(1.0, 1.0 + 2.0 * (edge - value) / (self.upper - edge)))

    def _returns(self, fixed: float, lowest: float, edge: float, limit: float) -> int:
        """Steps in which what was projected out, eigenvalue ``fixed``, grows by ``limit`` over the ``lowest`` left."""
        faster = self.rate(min(fixed, lowest), edge) - self.rate(lowest, edge)
        return max(1, int(min(math.log(limit) / max(faster, 1e-12), 1e9)))

    def _orthonormal(self, block: Tensor, against: Tensor) -> Tensor:
        """An orthonormal basis of the block, orthogonal to ``against`` and to the known modes."""
        block = block / torch.linalg.vector_norm(block, dim=0).clamp_min(1e-300)
        for _ in range(2):
            for other in (self.known, against):
                if other.shape[1]:
                    block = block - other @ (other.T @ block)
            factor, info = torch.linalg.cholesky_ex(block.T @ block)
            if int(info) == 0:
                block = torch.linalg.solve_triangular(factor.T, block, upper=True, left=False)
            else:  # nearly dependent columns: slower, but always orthonormal
                block = torch.linalg.qr(block)[0]
        return block

    def _rayleigh_ritz(self, basis: Tensor) -> None:
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

    def _edges(self, columns: int) -> tuple[float, float]:
        """Lowest eigenvalue and the value below which ``columns`` eigenvalues lie, guessed by a few Lanczos steps.

        Also tightens ``upper`` to the largest Ritz value plus its residual bound, where that is lower.
        """
        steps = min(LANCZOS_STEPS, self.n - self.known.shape[1] - 1)
        vector = self._orthonormal(self._normal(1, stream=1), self.block)
        before, coupling = torch.zeros_like(vector), torch.zeros((), dtype=torch.float64, device=self.device)
        alphas, betas = [], []
        for _ in range(steps):
            image = self.matrix @ vector - coupling * before
            alpha = (vector * image).sum()
            image = image - alpha * vector
            if self.known.shape[1]:
                image = image - self.known @ (self.known.T @ image)
            coupling = torch.linalg.vector_norm(image)
            before, vector = vector, image / coupling.clamp_min(1e-300)
            alphas.append(alpha)
            betas.append(coupling)
        diagonal, off = torch.stack(alphas).cpu().numpy(), torch.stack(betas).cpu().numpy()
        small = np.flatnonzero(off <= 1e-10 * self.scale)
        if small.size:  # an invariant subspace: later coefficients are noise
            diagonal, off = diagonal[: small[0] + 1], off[: small[0] + 1]
        theta, rotation = np.linalg.eigh(np.diag(diagonal) + np.diag(off[:-1], 1) + np.diag(off[:-1], -1))
        if not small.size:
            self.upper = min(self.upper, float(theta[-1] + abs(off[-1] * rotation[-1, -1]) + 1e-3 * self.scale))
        mass = np.cumsum(rotation[0] ** 2) * self.n
        inside = min(int(np.searchsorted(mass, columns)), theta.size - 1)
        return float(theta[0]), float(theta[inside])

    def solve(self, count: int, guard: int | None = None) -> Pairs:
        """The ``count`` smallest pairs, by a block of ``count + guard`` columns.

        Raises SpectrumError when the work limit is reached before every residual is small enough.
        """
        guard = max(16, count // 2) if guard is None else guard
        columns = min(-(-(count + guard) // 8) * 8, self.n - self.known.shape[1])
        count = min(count, columns)
        bound = self.upper
        low, edge = self._edges(2 * columns)
        edge = min(max(edge, low + 1e-3 * (self.upper - low)), (low + self.upper) / 2)
        start = self._normal(columns, stream=2)
        start -= self.known @ (self.known.T @ start)
        degree = max(2, int(min(math.log(SINGLE_GROWTH) / self.rate(low, edge), DEGREE_LIMIT)))
        zero = (self.known, self._returns(0.0, low, edge, SINGLE_RETURN))
        self._rayleigh_ritz(self._orthonormal(self.filtered(start, degree, edge, True, (zero,)), start[:, :0]))
        margin, worst, promised = 0.0, math.inf, 0.0
        while True:
            target = min(RESIDUAL_TARGET, RESIDUAL_PER_NORM * self.scale, RESIDUAL_PER_SPACING * self._spacing(count))
            target = max(target, ROUNDING_FLOOR * self.scale)
            if self.values[-1] > (edge + self.upper) / 2:  # the Lanczos bound was not one
                self.upper = bound
            locked = np.zeros(columns, dtype=bool)
            locked[:count] = self.residuals[:count] <= target
            if locked[:count].all():
                break
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
            limit = SINGLE_RETURN if single else RETURN_LIMIT
            first = float(self.values[locked].min(initial=lowest))
            pick = torch.as_tensor(np.flatnonzero(~locked), device=self.device)
            keep = torch.as_tensor(np.flatnonzero(locked), device=self.device)
            fixed = self.block[:, keep]
            without = (
                (self.known, self._returns(0.0, lowest, edge, limit)),
                (fixed, self._returns(first, lowest, edge, limit)),
            )
            active = self._orthonormal(self.filtered(self.block[:, pick], degree, edge, single, without), fixed)
            self._rayleigh_ritz(torch.cat([fixed, active], dim=1))
        whole = torch.cat([self.known, self.block[:, :count]], dim=1)
        gram = whole.T @ whole - torch.eye(whole.shape[1], dtype=torch.float64, device=self.device)
        vectors = self._to_host(self.block[:, :count])
        return Pairs(self.values[:count].copy(), vectors, self.residuals[:count].copy(), float(gram.abs().max()))

    @staticmethod
    def _to_host(tensor: Tensor) -> np.ndarray:
        """A copy as a NumPy array; from a GPU through page-locked memory, which is several times faster."""
        if tensor.device.type != "cuda":
            return tensor.numpy().copy()
        out = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return out.copy_(tensor).numpy()

    def _spacing(self, count: int) -> float:
        """Mean distance of the first ``count`` values, or of their upper half where that is smaller.

        Infinite where both are one cluster away from zero, which is no tight spectrum.
        """
        values = self.values[:count]
        least = 1e-6 * float(np.abs(values).max())
        widths = [(float(values[-1] - values[first]), count - first) for first in (0, count // 2)]
        return min((width / number for width, number in widths if width > least), default=math.inf)

    def load(self, pairs: Pairs) -> None:
        """Take over pairs of another solver, to check them."""
        self.block = torch.as_tensor(pairs.vectors, dtype=torch.float64, device=self.device)
        self.values, self.residuals = pairs.values, pairs.residuals

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
        for _ in range(CHECK_REFINEMENTS):
            unsafe = np.flatnonzero(~safe[kept:]) + kept
            if degree <= CHECK_DEGREE or unsafe.size < 2:
                break
            # A narrow gap makes the check long. Pairs above it that are better known are projected out too, and the
            # gap that counts is the one above them.
            self._improve(unsafe)
            before = degree
            safe, raised, edge, degree = self._check_plan(kept, sigma)
            if degree > 0.7 * before:
                break
        sigma, speed = raised, self.rate(raised, edge)
        if speed <= 0.0 or degree > WORK_LIMIT:
            return 1.0
        take = torch.as_tensor(np.flatnonzero(safe | (np.arange(self.values.size) < kept)), device=self.device)
        found = self.block[:, take]
        first = float(self.values.min(initial=sigma))
        without = (
            (self.known, self._returns(0.0, edge, edge, CHECK_RETURN)),
            (found, self._returns(first, edge, edge, CHECK_RETURN)),
        )
        columns = self.filtered(self._normal(CHECK_COLUMNS, stream=3), degree, edge, without=without)
        for basis in (self.known, found):
            columns = columns - basis @ (basis.T @ columns)
        columns = columns * math.exp(-self._log_cosh(degree * speed))
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
        speed = self.rate(raised, edge)
        # Without room between the two (a cluster at the end of the block) no degree suffices.
        degree = math.ceil(math.acosh(CHECK_GROWTH * math.sqrt(self.n)) / speed) if speed > 0.0 else WORK_LIMIT + 1
        return safe, raised, edge, degree

    def _improve(self, columns: np.ndarray) -> None:
        """Filter these columns of the block once more, up to its end, and mix them with the others."""
        others = np.setdiff1d(np.arange(self.values.size), columns)
        lowest, edge = float(self.values[columns[0]]), float(self.values[-1])
        degree = max(4, int(min(math.log(GROWTH_LIMIT) / max(self.rate(lowest, edge), 1e-12), CHECK_DEGREE)))
        fixed = self.block[:, torch.as_tensor(others, device=self.device)]
        first = float(self.values[others].min(initial=lowest))
        without = (
            (self.known, self._returns(0.0, lowest, edge, RETURN_LIMIT)),
            (fixed, self._returns(first, lowest, edge, RETURN_LIMIT)),
        )
        pick = torch.as_tensor(columns, device=self.device)
        active = self._orthonormal(self.filtered(self.block[:, pick], degree, edge, without=without), fixed)
        self._rayleigh_ritz(torch.cat([fixed, active], dim=1))

    @staticmethod
    def _log_cosh(x: float) -> float:
        return x + math.log1p(math.exp(-2.0 * x)) - math.log(2.0)
