"""One large connected component: which solver takes it, which comes next when that fails, and its certificate.

The rule of ``solver="auto"``, n nodes and m pairs wanted at each end:

1. n ≤ 512: dense (``components.py``), and so are components too small for iterative solvers, n ≤ 6m + 48, up to 2,000.
2. On a GPU and n > 2,000: ``chebyshev``, checked.
3. Cheap factorisation (``factorization.is_cheap``): ``shift_invert``, proved.
4. n ≤ 2,000: dense, proved; also before 3 when more than a tenth of the matrix is filled.
5. Otherwise ``chebyshev``, checked.

A solver that fails, or whose result fails the certificate, is followed by the next of: chebyshev (a Krylov space of a
few columns), chebyshev by block iteration, which sees all copies of an eigenvalue, the same with a larger block,
shift_invert where cheap, lobpcg where pyamg is installed, dense up to 2,000 nodes.
A solver that the user forces is not followed by another one.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from gssc.spectra.certificate import MISS_LIMIT, Level, Pairs, SpectrumError
from gssc.spectra.chebyshev import ChebyshevBlock
from gssc.spectra.components import Part, dense_batch, dense_part, part_of_pairs
from gssc.spectra.factorization import is_cheap, negative_count
from gssc.spectra.lobpcg import import_pyamg, solve_lobpcg
from gssc.spectra.shift_invert import solve_shift_invert
from gssc.spectra.sparse_operator import SparseOperator

Solver = Literal["auto", "dense", "shift_invert", "chebyshev", "lobpcg"]
SOLVERS = ("auto", "dense", "shift_invert", "chebyshev", "lobpcg")

# Dense n×n matrices are never built above DENSE_LIMIT nodes; up to DENSE_FIRST they are the first choice.
DENSE_LIMIT = 2_000
DENSE_FIRST = 512
DENSE_FILL = 0.1
# The count is taken this far below the upper end of the gap (as a fraction of it), so that an eigenvalue that hides
# anywhere in the lower part of the gap is counted as well.
SIGMA = 0.125
POWER_STEPS = 12
# Up to this many nodes a factorisation that fills in is slow, but possible, and done when asked for.
FORCED_LIMIT = 5_000


def dense_size(solver: Solver, count: int) -> int:
    """Components of up to this many nodes are solved densely at once."""
    small = min(6 * count + 48, DENSE_LIMIT)
    if solver == "dense":
        return DENSE_LIMIT
    return max(DENSE_FIRST, small) if solver == "auto" else small


def spectral_bound(matrix: sp.csr_array) -> float:
    """A guaranteed bound of |λ|: max_u (|H| x)_u / x_u for positive x (Collatz-Wielandt), x by power iteration."""
    magnitude = abs(matrix)
    x = np.ones(matrix.shape[0])
    bound = np.inf
    for _ in range(POWER_STEPS):
        y = magnitude @ x
        bound = min(bound, float((y / x).max()))
        # Half a step keeps bipartite graphs from oscillating; the floor keeps x positive.
        x = np.maximum(y / max(y.max(), 1e-300) + x, 1e-6)
        x /= x.max()
    return bound


@dataclass(frozen=True)
class Refusal:
    """Why a count could not be certified, and whether it is known to be wrong (or only not known to be right)."""

    reason: str
    wrong: bool


@dataclass
class End:
    """One end of the spectrum, as the low end of H (A negated for the high end of the adjacency matrix)."""

    source: Callable[[], sp.csr_array]
    known: Any | None
    lower: float
    upper: float
    # The same matrix where it was built on the device; the host builds its own only when a solver asks for it.
    ready: SparseOperator | None = None
    pairs: Pairs | None = None
    block: ChebyshevBlock | None = None

    def _chebyshev(self, device: str, seed: int) -> ChebyshevBlock:
        matrix = self.source() if self.ready is None else self.ready
        return ChebyshevBlock(matrix, self.upper, self.known, device, seed)

    def solve(self, solver: str, count: int, attempt: int, device: str, seed: int) -> None:
        """Run one solver; SpectrumError when it fails."""
        self.block = None
        if solver == "chebyshev":
            self.block = self._chebyshev(device, seed + attempt)
            guard = max(64, 2 * count) if attempt > 1 else None
            method = "krylov" if attempt == 0 else "iterate"
            self.pairs = self.block.solve(count, guard, method, on_device=self.ready is not None)
        else:
            run = solve_shift_invert if solver == "shift_invert" else solve_lobpcg
            known = self.known.cpu().numpy() if isinstance(self.known, Tensor) else self.known
            self.pairs = run(self.source(), count, self.lower, known, seed + attempt)

    def certify(
        self, kept: int, low: float, high: float, cheap: bool, device: str, seed: int
    ) -> tuple[Level, float] | Refusal:
        """Whether exactly ``kept`` eigenvalues (besides the known) lie below the gap (low, high): level, or why not."""
        assert self.pairs is not None
        sigma = high - SIGMA * (high - low)
        if cheap:
            expected = kept + (0 if self.known is None else self.known.shape[1])
            counted = negative_count(self.source(), sigma, 0.5 * SIGMA * (high - low), seed)
            if counted is not None:
                if counted == expected:
                    return "proved", 0.0
                return Refusal(f"{counted} eigenvalues lie below {sigma:.6g}, {expected} were found", True)
        if self.block is None:
            self.block = self._chebyshev(device, seed)
            self.block.load(self.pairs)
        miss = self.block.miss_probability(kept, sigma)
        if miss <= MISS_LIMIT:
            return "checked", miss
        return Refusal(
            f"a random block leaves doubt ({miss:.0e}) that an eigenvalue below {sigma:.6g} was missed", False
        )


class LargeComponent:
    """A component that is solved by itself; ``climb`` runs its solvers one after the other.

    Args:
        matrix: Its operator [n, n].
        kernel: Its zero mode [n], or None for the adjacency matrix, whose both ends are solved.
        normalised: Whether the operator is the normalised Laplacian, bounded by 2.
        nodes: Its nodes in the graph [n].
        ready: The operator where it was built on the device; ``matrix`` may then be a function that builds it on the
            host, called only if a solver needs it, and ``kernel`` a tensor.
    """

    def __init__(
        self,
        matrix: sp.csr_array | Callable[[], sp.csr_array],
        kernel: Any | None,
        normalised: bool,
        nodes: np.ndarray,
        solver: Solver,
        device: str,
        seed: int,
        ready: SparseOperator | None = None,
    ) -> None:
        self.kernel, self.nodes, self.device, self.seed = kernel, nodes, device, seed
        self._matrix = matrix
        self.n = int(nodes.size)
        self.scale = 2.0 if normalised else spectral_bound(self.matrix) if ready is None else ready.bound(POWER_STEPS)
        known = None if kernel is None else kernel[:, None]
        lower = -self.scale if kernel is None else 0.0
        self.ends = [End(lambda: self.matrix, known, lower, self.scale, ready)]
        if kernel is None:
            host = self.matrix
            negated = sp.csr_array((-host.data, host.indices, host.indptr), shape=host.shape)
            self.ends.append(End(lambda: negated, None, lower, self.scale))
        self._cheap: bool | None = None
        self.forced = solver != "auto"
        self.rungs = self._rungs(solver)
        self.solver, self.complete, self.reasons = "", False, list[str]()
        self.part: Part | None = None

    @property
    def matrix(self) -> sp.csr_array:
        """The operator on the host."""
        if callable(self._matrix):
            self._matrix = self._matrix()
        return self._matrix

    @property
    def cheap(self) -> bool:
        """Whether a factorisation is affordable, found out once."""
        if self._cheap is None:
            self._cheap = is_cheap(self.matrix)
        return self._cheap

    def _rungs(self, solver: Solver) -> list[tuple[str, int]]:
        if solver == "lobpcg":
            import_pyamg()
        chebyshev = [("chebyshev", 0), ("chebyshev", 1), ("chebyshev", 2)]
        if solver != "auto":
            return list(chebyshev) if solver == "chebyshev" else [(solver, 0), (solver, 1)]
        rungs = list(chebyshev)
        on_gpu = self.device != "cpu" and self.n > DENSE_LIMIT
        if on_gpu:
            rungs.append(("shift_invert", 0))
        elif self.cheap:
            rungs.insert(0, ("shift_invert", 0))
        if self.n <= DENSE_LIMIT:
            filled = self.matrix.nnz > DENSE_FILL * self.n**2
            rungs.insert(0 if filled or not self.cheap else 1, ("dense", 0))
        if importlib.util.find_spec("pyamg") is not None:
            rungs.append(("lobpcg", 0))
        return rungs

    def climb(self, count: int, reason: str | None = None) -> Part:
        """The result of the next solver that has one; ``reason`` says why the last result was refused.

        Raises SpectrumError with all reasons when no solver is left.
        """
        if reason is not None:
            self.reasons.append(f"{self.solver}: {reason}")
        while self.rungs:
            self.solver, attempt = self.rungs.pop(0)
            if self.solver == "shift_invert" and not (self.cheap or (self.forced and self.n <= FORCED_LIMIT)):
                self.reasons.append("shift_invert: the factorisation would fill in too much")
                self.rungs = [rung for rung in self.rungs if rung[0] != "shift_invert"]
                continue
            try:
                return self._run(count, attempt)
            except (SpectrumError, MemoryError) as error:
                self.reasons.append(f"{self.solver}: {error}")
        raise SpectrumError(f"component of {self.n} nodes, {self.matrix.nnz} entries: " + "; ".join(self.reasons))

    def _run(self, count: int, attempt: int) -> Part:
        if self.solver == "dense":
            kernel = None if self.kernel is None else self.kernel[None]
            values, vectors, accuracy = dense_batch(self.matrix.toarray()[None], kernel)
            self.complete = True
            both = self.kernel is None
            self.part = dense_part(self.nodes[None], values, vectors, accuracy, count + (not both), both)
            return self.part
        wanted = min(count, self.n - (self.kernel is not None))
        for end in self.ends:
            end.solve(self.solver, wanted, attempt, self.device, self.seed)
        self.part = part_of_pairs(self.nodes, [end.pairs for end in self.ends if end.pairs is not None], self.kernel)
        return self.part

    def certify(
        self, accepted: np.ndarray, boundary: tuple[float, float], tolerance: float
    ) -> tuple[Level, float] | Refusal:
        """Level and miss probability for the cut that accepts these of the part's values [m], or why there is none.

        ``boundary`` holds, for the low and the high end, the value up to which the cut accepts everything in the graph.
        """
        if self.complete:
            return "proved", 0.0
        assert self.part is not None
        proof = self.device == "cpu" or self.solver == "shift_invert"
        first = 0 if self.kernel is None else 1
        flags = accepted[first:]
        level: Level = "proved"
        total = 0.0
        for number, end in enumerate(self.ends):
            assert end.pairs is not None
            values = end.pairs.values
            kept = int((flags if number == 0 else flags[::-1])[: values.size].sum())
            if kept == values.size:
                return Refusal(f"all {kept} pairs computed lie on the kept side of the cut", True)
            high = float(values[kept])
            last = float(values[kept - 1]) if kept else 0.0 if self.kernel is not None else -np.inf
            edge = boundary[0] if number == 0 else -boundary[1]
            options = [value for value in (last, edge) if np.isfinite(value) and value < high - tolerance]
            low = max(options) if options else high - max(10.0 * tolerance, 1e-3 * self.scale)
            outcome = end.certify(kept, low, high, proof and self.cheap, self.device, self.seed + 7919)
            if isinstance(outcome, Refusal):
                return outcome
            level = outcome[0] if outcome[0] == "checked" else level
            total += outcome[1]
        return level, total
