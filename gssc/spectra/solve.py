"""The spectrum of one graph of any size: components, solvers, merge, whole eigenspaces, certificate."""

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.spectra.certificate import Certificate, Level, SpectrumError, judge, orthogonality, residual_norms
from gssc.spectra.chebyshev import to_host
from gssc.spectra.components import Part, find_components, kernel_vector, small_parts
from gssc.spectra.device_graph import DeviceGraph
from gssc.spectra.operators import Operator, build_operator
from gssc.spectra.solver_choice import DENSE_LIMIT, SOLVERS, LargeComponent, Refusal, Solver, dense_size
from gssc.spectra.truncation import Selection, Spectrum, SpectrumSettings, Truncation, ZeroModes, cut, select

# How often more pairs are computed because too many of those computed turned out to be zero modes.
ENLARGEMENTS = 4
# A gap below this fraction of ‖L‖ is closed when the count at it can be neither proved nor checked.
NARROW_GAP = 1e-6


def solve(
    adjacency: sp.csr_array,
    operator: Operator,
    k: int,
    *,
    zero_modes: ZeroModes = "keep",
    truncation: Truncation = "eigenspace",
    solver: Solver = "auto",
    device: str = "cpu",
    seed: int = 0,
) -> Spectrum:
    """The first ``k`` eigenpairs of the operator of a symmetric adjacency matrix [n, n], in float64, certified.

    The smallest λ of Laplacians, the largest |λ| of the adjacency matrix; whole eigenspaces only, unless
    ``truncation="raw"``. Every connected component is solved by itself: k + 1 pairs of each suffice to know the first
    k + 1 of the graph, hence whether the eigenspace at the cut goes on beyond it; how far does not matter, as it is
    dropped as a whole. Memory is linear in n·k + E.

    Args:
        adjacency: Symmetric weights, float64.
        operator: ``"sym"``, ``"combinatorial"`` or ``"adjacency"``.
        k: Number of pairs to return, padded with zeros.
        zero_modes: Whether to ``"keep"`` or ``"drop"`` λ = 0 (Laplacians only).
        truncation: ``"eigenspace"`` or ``"raw"``.
        solver: ``"auto"`` (the rule is in ``solver_choice.py``), or the one to use for components that are not small.
        device: Where the Chebyshev solver and check run.
        seed: Seeds every random start; the global generators are never used.

    Raises:
        SpectrumError: no solver reached a certified result; says for which graph and why.
    """
    settings = SpectrumSettings(k, operator, zero_modes, truncation)
    check_choice("solver", solver, SOLVERS)
    try:
        return _Merge(adjacency, settings, solver, device, seed).run()
    except SpectrumError as error:
        n, edges = adjacency.shape[0], (adjacency.nnz + int((adjacency.diagonal() != 0).sum())) // 2
        raise SpectrumError(
            f"no certified spectrum of the graph with {n} nodes and {edges} edges (operator {operator!r}, k = {k}): "
            f"{error}"
        ) from error


def stays_on_device(n: int, solver: Solver, device: str) -> bool:
    """Whether components are found, and the operator of a connected graph is built, on the device."""
    return device != "cpu" and solver in ("auto", "chebyshev") and n > DENSE_LIMIT


class _Merge:
    """The parts of one graph and the cut through their merged spectra."""

    def __init__(
        self, adjacency: sp.csr_array, settings: SpectrumSettings, solver: Solver, device: str, seed: int
    ) -> None:
        self.n, self.settings = adjacency.shape[0], settings
        operator, self.both = settings.operator, settings.by_magnitude
        # Pairs per component and end, a known zero mode not counted.
        self.count = settings.k + (1 if self.both or settings.drops_zeros else 0)
        dense = dense_size(solver, self.count)
        self.small: list[Part] = []
        self.large: list[LargeComponent] = []
        graph, label = None, None
        if stays_on_device(self.n, solver, device):
            graph = DeviceGraph.from_scipy(adjacency, device)
            label = graph.labels()
        zero: Any
        # All nodes in the component of node 0.
        if graph is not None and label is not None and not self.both and not bool(label.any()):
            ready, zero = graph.laplacian(operator)
            normalised, nodes = operator == "sym", np.arange(self.n)
            host = partial(build_operator, adjacency, operator)
            self.large.append(LargeComponent(host, zero, normalised, nodes, solver, device, seed, ready))
            self.zeros = 1
        else:
            self.matrix = build_operator(adjacency, operator)
            components = find_components(adjacency, None if label is None else label.cpu().numpy())
            kernel = kernel_vector(adjacency, operator, components)
            biggest = int(components.size.max(initial=0))
            if solver == "dense" and biggest > DENSE_LIMIT:
                fail("solver", f"another one than 'dense' for more than {DENSE_LIMIT} connected nodes", biggest)
            self.solve_small = partial(small_parts, self.matrix, components, kernel, dense)
            self.small += self.solve_small(self.count + (not self.both))
            for number in np.flatnonzero(components.size > dense):
                nodes = components.members(int(number))
                block = self.matrix if nodes.size == self.n else self.matrix[nodes][:, nodes].tocsr()
                zero = None if kernel is None else kernel[nodes]
                self.large.append(LargeComponent(block, zero, operator == "sym", nodes, solver, device, seed))
            self.zeros = components.size.size
        self.floor = 0.0
        norms = [float(np.abs(part.values).max(initial=0.0)) for part in self.small]
        self.scale = max([0.0, *norms, *(component.scale for component in self.large)])

    def run(self) -> Spectrum:
        for component in self.large:
            component.climb(self.count)
        enlarged = 0
        while True:
            tolerance, chosen = self._cut()
            available = int(chosen.available)
            if self._small_parts_end_early(float(tolerance)):
                self.count *= 2
                self.small = list(self.solve_small(self.count + 1))
                continue
            if self.large and available <= self.settings.k and available < self._obtainable(self.zeros):
                if enlarged == ENLARGEMENTS:
                    raise SpectrumError(f"more than {self.count} eigenvalues are zero within {float(tolerance):.1e}")
                enlarged += 1
                self._enlarge()
                continue
            outcome = self._certify(float(tolerance), chosen)
            if outcome is not None:
                return self._assemble(tolerance, chosen, *outcome)

    def _small_parts_end_early(self, tolerance: float) -> bool:
        """Whether zeros that are dropped have used up the pairs that a dense component keeps of all that it has.

        A component has one zero mode, but weakly joined clusters give it more values within the tolerance of zero.
        """
        return self.settings.drops_zeros and any(
            part.values.shape[1] < part.nodes.shape[1] and (part.values > tolerance).sum(1).min() <= self.settings.k
            for part in self.small
        )

    def _parts(self) -> list[Part]:
        return [*self.small, *(component.part for component in self.large if component.part is not None)]

    def _obtainable(self, zeros: int) -> int:
        """How many pairs there are to choose from: all nodes, less the zero modes where they are dropped."""
        return self.n - (zeros if self.settings.drops_zeros else 0)

    def _enlarge(self) -> None:
        """Twice the pairs of every large component."""
        self.count *= 2
        for component in self.large:
            if not component.complete:
                component.rungs.insert(0, (component.solver, 0))
                component.climb(self.count)

    def _cut(self) -> tuple[Tensor, Selection]:
        """Merge the parts into one row of values, and cut it in whole eigenspaces: tolerance [1] and selection."""
        parts = self._parts()
        flat = np.concatenate([np.zeros(0), *(part.values.ravel() for part in parts)])
        errors = np.concatenate([np.zeros(0), *(part.errors.ravel() for part in parts)])
        # Stable, so that equal values keep the order of their components.
        self.order = np.argsort(flat, kind="stable")
        self.values, self.errors = (torch.from_numpy(row[self.order]).unsqueeze(0) for row in (flat, errors))
        self.size = torch.tensor([flat.size])
        tolerance, chosen = cut(self.values, self.errors, self.size, self.settings, self.zeros, self.floor)
        self.residual = float(chosen.residual(self.values, self.errors))
        return tolerance, chosen

    def _certify(self, tolerance: float, chosen: Selection) -> tuple[Level, float] | None:
        """Level and miss probability of the cut; None when a component had to be solved anew."""
        accepted = np.empty(self.order.size, dtype=bool)
        accepted[self.order] = chosen.accepted[0].numpy()
        reached = chosen.merged[chosen.accepted].numpy()
        gap = float(chosen.gap)
        low, high = -np.inf, np.inf
        if self.both and reached.size:
            low, high = -float(np.abs(reached).min()), float(np.abs(reached).min())
        elif reached.size:
            low = float(reached.max())
        begin = sum(part.values.size for part in self.small)
        orthogonal = max((part.orthogonality for part in self._parts()), default=0.0)
        trouble = judge(self.residual, orthogonal, gap, self.scale)
        if trouble is not None:
            if not self.large:
                raise SpectrumError(trouble)
            for component in self.large:
                component.climb(self.count, trouble)
            return None
        level: Level = "proved"
        miss = 0.0
        again = False
        for component in self.large:
            assert component.part is not None
            size = component.part.values.size
            outcome = component.certify(accepted[begin : begin + size], (low, high), tolerance)
            begin += size
            if isinstance(outcome, Refusal):
                again = True
                if not outcome.wrong and gap < NARROW_GAP * self.scale:
                    # Resolved by the solver, but too narrow to count at: both sides are one cluster from now on.
                    self.floor = 2.0 * gap
                else:
                    component.climb(self.count, outcome.reason)
                continue
            level = "checked" if outcome[0] == "checked" else level
            miss += outcome[1]
        return None if again else (level, miss)

    def _assemble(self, tolerance: Tensor, chosen: Selection, level: Level, miss: float) -> Spectrum:
        settings, final, residual = self.settings, chosen, self.residual
        if settings.truncation == "raw":
            final = select(self.values, self.size, settings, tolerance, whole=False)
            residual = float(final.residual(self.values, self.errors))
        values, mask = final.values[0].numpy(), final.mask[0].numpy()
        count = int(mask.sum())
        parts = self._parts()
        sizes = np.array([part.values.size for part in parts], dtype=np.int64)
        offset = np.concatenate([[0], np.cumsum(sizes)])
        device = parts[0].device if len(parts) == 1 else None
        # One component that was left on its device is put together there, and copied once.
        parts = parts if device is not None else [part.on_host() for part in parts]
        out: Any = np.zeros((self.n, settings.k))
        if device is not None:
            out = torch.zeros(self.n, settings.k, dtype=torch.float64, device=device)
        flat = self.order[final.index[0, :count].numpy()]
        number = np.searchsorted(offset, flat, side="right") - 1
        width = np.array([part.values.shape[1] for part in parts], dtype=np.int64)[number]
        member, pair = np.divmod(flat - offset[number], width)
        for which, where in {(int(i), int(j)) for i, j in zip(number, member, strict=True)}:
            columns = np.flatnonzero((number == which) & (member == where))
            parts[which].write(where, pair[columns], out, columns)
        finite = torch.isfinite(out).all() if device is not None else np.isfinite(out).all()
        if not (np.isfinite(values).all() and bool(finite)):
            raise SpectrumError("a solver returned numbers that are not finite")
        vectors = to_host(out) if device is not None else out
        orthogonal = max((part.orthogonality for part in parts), default=0.0)
        if self.both and self.large:
            # The two ends were solved apart and are orthogonal up to their residuals: one Newton step to the nearest
            # orthonormal basis squares that error, and the result is measured anew.
            kept = vectors[:, :count]
            for value in np.unique(values[:count]):
                # A raw cut may keep vectors of one eigenspace from both ends.
                same = np.flatnonzero(values[:count] == value)
                if settings.truncation == "raw" and same.size > 1:
                    kept[:, same] = np.linalg.qr(kept[:, same])[0]
            kept[:] = kept @ (1.5 * np.eye(count) - 0.5 * (kept.T @ kept))
            residual = float(residual_norms(self.matrix, values[:count], kept).max(initial=residual))
            orthogonal = orthogonality(kept)
            trouble = judge(residual, orthogonal, np.inf, self.scale)
            if trouble is not None:
                raise SpectrumError(trouble)
        names = {component.solver for component in self.large} | ({"dense"} if self.small else set())
        certificate = Certificate(
            solver="+".join(sorted(names, key=lambda name: (name != "dense", name))) or "dense",
            level=level,
            residual=residual,
            orthogonality=orthogonal,
            gap=float(final.gap),
            tolerance=float(tolerance),
            miss_probability=miss,
        )
        available = self._obtainable(int((final.merged == 0.0).sum()))
        return Spectrum(values, vectors, mask, available, certificate)
