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
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import check_installed
from gssc.spectra.certificate import MISS_LIMIT, CountRefusedError, Pairs, SpectrumError
from gssc.spectra.chebyshev import ChebyshevBlock
from gssc.spectra.components import Part, dense_part
from gssc.spectra.factorization import is_cheap, negative_count, solve_shift_invert
from gssc.spectra.lobpcg import solve_lobpcg
from gssc.spectra.sparse_operator import SparseOperator

Solver = Literal["auto", "dense", "shift_invert", "chebyshev", "lobpcg"]
SOLVERS = get_args(Solver)
Matrix = TypeVar("Matrix", sp.csr_array, SparseOperator)

# Dense n×n matrices are never built above DENSE_LIMIT nodes; up to DENSE_FIRST they are the first choice.
DENSE_LIMIT = 2_000
DENSE_FIRST = 512
DENSE_FILL = 0.1
# The count is taken this far below the upper end of the gap (as a fraction of it), so that an eigenvalue that hides
# anywhere in the lower part of the gap is counted as well.
SIGMA = 0.125
# Added to the seed for the random blocks that check a count.
CHECK_SEED = 7919
# Up to this many nodes a factorisation that fills in is slow, but possible, and done when asked for.
FORCED_LIMIT = 5_000


def dense_size(solver: Solver, count: int) -> int:
    """Components of up to this many nodes are solved densely at once."""
    small = min(6 * count + 48, DENSE_LIMIT)
    if solver == "dense":
        return DENSE_LIMIT
    return max(DENSE_FIRST, small) if solver == "auto" else small


class SolverSettings(NamedTuple):
    """Which solver to use, where the Chebyshev solver and check run, and what seeds every random start."""

    solver: Solver
    device: str
    seed: int


@dataclass
class End:
    """The pairs found at one end of a spectrum, the low end of H = ``sign`` · operator; ``block`` can check them."""

    sign: float
    pairs: Pairs
    block: ChebyshevBlock | None


@dataclass(eq=False)
class LargeComponent:
    """A component that is solved by itself; ``climb`` runs its solvers one after the other.

    ``build`` makes its operator [n, n] on the host, called only if a solver needs it; ``on_device`` is the operator
    where it was built there. ``zero_mode`` [n] is None for the adjacency matrix, whose both ends are solved; a
    ``normalised`` Laplacian is bounded by 2. ``nodes`` [n] are those of the graph.
    """

    build: Callable[[], sp.csr_array]
    zero_mode: Tensor | None
    normalised: bool
    nodes: np.ndarray
    settings: SolverSettings
    on_device: SparseOperator | None = None

    def __post_init__(self) -> None:
        self.n = int(self.nodes.size)
        self.scale = 2.0 if self.normalised else self.operator.bound()
        self.rungs = self._rungs(self.settings.solver)
        self.solver, self.complete, self.reasons = "", False, list[str]()
        self.parts: list[Part] = []
        self.ends: list[End] = []

    @cached_property
    def matrix(self) -> sp.csr_array:
        """The operator on the host."""
        return self.build()

    @cached_property
    def operator(self) -> SparseOperator:
        """The operator on the device."""
        return self.on_device or SparseOperator.from_scipy(self.matrix, self.settings.device)

    @cached_property
    def cheap(self) -> bool:
        """Whether a factorisation is affordable."""
        return is_cheap(self.matrix)

    def _rungs(self, solver: Solver) -> list[tuple[str, int]]:
        if solver == "lobpcg":
            check_installed("solver='lobpcg'", "pyamg")
        if solver not in ("auto", "chebyshev"):
            return [(solver, 0), (solver, 1)]
        rungs = [("chebyshev", 0), ("chebyshev", 1), ("chebyshev", 2)]
        if solver == "chebyshev":
            return rungs
        on_gpu = self.settings.device != "cpu" and self.n > DENSE_LIMIT
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

    def climb(self, count: int, reason: str | None = None) -> None:
        """Take the parts of the next solver that has them; ``reason`` says why the last result was refused.

        Raises SpectrumError with all reasons when no solver is left.
        """
        if reason is not None:
            self.reasons.append(f"{self.solver}: {reason}")
        while self.rungs:
            self.solver, attempt = self.rungs.pop(0)
            possible = self.settings.solver != "auto" and self.n <= FORCED_LIMIT
            if self.solver == "shift_invert" and not (self.cheap or possible):
                self.reasons.append("shift_invert: the factorisation would fill in too much")
                self.rungs = [rung for rung in self.rungs if rung[0] != "shift_invert"]
                continue
            try:
                self.parts = self._run(count, attempt)
                return
            except (SpectrumError, MemoryError, ArithmeticError, np.linalg.LinAlgError) as error:
                self.reasons.append(f"{self.solver}: {error}")
        raise SpectrumError(f"component of {self.n} nodes, {self.matrix.nnz} entries: " + "; ".join(self.reasons))

    def enlarge(self, count: int) -> None:
        """So many pairs by the same solver, unless it has found all."""
        if not self.complete:
            self.rungs.insert(0, (self.solver, 0))
            self.climb(count)

    def _run(self, count: int, attempt: int) -> list[Part]:
        """The parts that one solver finds: the zero mode and the low end, or both ends."""
        laplacian, nodes = self.zero_mode is not None, self.nodes[None]
        self.complete = self.solver == "dense"
        if self.complete:
            mass = None if self.zero_mode is None else self.zero_mode[None].square().cpu().numpy()
            return [dense_part(nodes, self.matrix.toarray()[None], np.array([self.scale]), mass, count + laplacian)]
        parts = []
        if self.zero_mode is not None:
            zero = np.zeros((1, 1))
            parts.append(Part(nodes, zero, self.zero_mode[None, :, None], zero, 0.0, zero_modes=True))
        self.ends = []
        for sign in (1.0,) if laplacian else (1.0, -1.0):
            self.ends.append(self._solve_end(sign, min(count, self.n - laplacian), attempt))
            pairs = self.ends[-1].pairs
            vectors, values = torch.as_tensor(pairs.vectors)[None], sign * pairs.values[None]
            parts.append(Part(nodes, values, vectors, pairs.residuals[None], pairs.orthogonality))
        return parts

    def _solve_end(self, sign: float, count: int, attempt: int) -> End:
        if self.solver == "chebyshev":
            block = self._chebyshev(sign, attempt)
            guard = max(64, 2 * count) if attempt > 1 else None
            return End(sign, block.solve(count, guard, "krylov" if attempt == 0 else "iterate"), block)
        run = solve_shift_invert if self.solver == "shift_invert" else solve_lobpcg
        zero_modes = None if self.zero_mode is None else self.zero_mode[:, None].cpu().numpy()
        lower = -self.scale if zero_modes is None else 0.0
        seed = self.settings.seed + attempt
        return End(sign, run(_signed(self.matrix, sign), count, lower, zero_modes, seed), None)

    def _chebyshev(self, sign: float, seed: int) -> ChebyshevBlock:
        zero_modes = None if self.zero_mode is None else self.zero_mode[:, None]
        return ChebyshevBlock(_signed(self.operator, sign), self.scale, zero_modes, self.settings.seed + seed)

    def certify(self, accepted: list[int], boundary: float, tolerance: float) -> list[float]:
        """Miss probabilities of the cut that accepts so many values of each part, none where its counts are proved.

        At either end of the spectrum the cut accepts everything in the graph that lies, seen from there, before
        ``boundary``. Raises CountRefusedError.
        """
        if self.complete:
            return []
        proof = self.settings.device == "cpu" or self.solver == "shift_invert"
        misses: list[float] = []
        for end, kept in zip(self.ends, accepted[-len(self.ends) :], strict=True):
            values = end.pairs.values
            if kept == values.size:
                raise CountRefusedError(f"all {kept} pairs computed lie on the kept side of the cut", wrong=True)
            high = float(values[kept])
            last = float(values[kept - 1]) if kept else 0.0 if self.zero_mode is not None else -np.inf
            options = [value for value in (last, boundary) if np.isfinite(value) and value < high - tolerance]
            low = max(options) if options else high - max(10.0 * tolerance, 1e-3 * self.scale)
            misses += self._certify_end(end, kept, low, high, proof and self.cheap)
        return misses

    def _certify_end(self, end: End, kept: int, low: float, high: float, cheap: bool) -> list[float]:
        """Certify that exactly ``kept`` eigenvalues (besides the zero mode) lie below the gap (low, high).

        Returns nothing where that is proved, the miss probability where it is checked; raises CountRefusedError.
        """
        sigma = high - SIGMA * (high - low)
        if cheap:
            expected, seed = kept + (self.zero_mode is not None), self.settings.seed + CHECK_SEED
            counted = negative_count(_signed(self.matrix, end.sign), sigma, 0.5 * SIGMA * (high - low), seed)
            if counted == expected:
                return []
            if counted is not None:
                raise CountRefusedError(
                    f"{counted} eigenvalues lie below {sigma:.6g}, {expected} were found", wrong=True
                )
        if end.block is None:
            end.block = self._chebyshev(end.sign, CHECK_SEED)
            end.block.load(end.pairs)
        miss = end.block.miss_probability(kept, sigma)
        if miss <= MISS_LIMIT:
            return [miss]
        doubt = f"a random block leaves doubt ({miss:.0e}) that an eigenvalue below {sigma:.6g} was missed"
        raise CountRefusedError(doubt, wrong=False)


def _signed(matrix: Matrix, sign: float) -> Matrix:
    return matrix if sign > 0 else -matrix
