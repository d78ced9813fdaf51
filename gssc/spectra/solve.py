"""The spectrum of one graph of any size: components, solvers, merge, whole eigenspaces, certificate."""

from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.spectra.certificate import Certificate, CountRefusedError, SpectrumError, judge, orthogonality, residual_norms
from gssc.spectra.components import Part, find_components, small_parts
from gssc.spectra.operators import Operator, build_operator, degrees, row_bounds, scaled, smallest_nodes, zero_mode_mass
from gssc.spectra.solver_choice import DENSE_LIMIT, SOLVERS, LargeComponent, Solver, SolverSettings, dense_size
from gssc.spectra.sparse_operator import DeviceGraph
from gssc.spectra.truncation import DENSE_ACCURACY, Spectrum, SpectrumSettings, Truncation, Which, ZeroModes, cut

# How often more pairs are computed because too many of those computed turned out to be zero modes.
ENLARGEMENTS = 4
ROUNDS = 1_000
# A gap below this fraction of ‖L‖ is closed when the count at it can be neither proved nor checked.
NARROW_GAP = 1e-6


def solve(
    adjacency: sp.csr_array,
    operator: Operator,
    k: int,
    *,
    zero_modes: ZeroModes = "keep",
    truncation: Truncation = "eigenspace",
    which: Which = "low",
    solver: Solver = "auto",
    device: str = "cpu",
    seed: int = 0,
) -> Spectrum:
    """The first ``k`` eigenpairs of the operator of a symmetric adjacency matrix [n, n], in float64, certified.

    The smallest λ of Laplacians unless ``which`` says otherwise, the largest |λ| of the adjacency matrix; whole
    eigenspaces only, unless ``truncation="raw"``. Every connected component is solved by itself: k + 1 pairs of each
    suffice to know the first k + 1 of the graph, hence whether the eigenspace at the cut goes on beyond it; how far
    does not matter, as it is dropped as a whole. Memory is linear in n·k + E.

    Arguments are those of `LaplacianSpectrum`. ``solver`` is for components that are not small (``solver_choice.py``
    has the rule of ``"auto"``), ``device`` is where the Chebyshev solver and check run. ``seed`` seeds every random
    start; the global generators are never used.

    Raises:
        SpectrumError: no solver reached a certified result; says for which graph and why.
    """
    check_choice("solver", solver, SOLVERS)
    settings = SpectrumSettings(k, operator, zero_modes, truncation, which)
    adjacency, exponent = scaled(adjacency, operator)
    try:
        return Merge(adjacency, settings, SolverSettings(solver, device, seed)).run().scaled(int(exponent[0]))
    except SpectrumError as error:
        n, edges = adjacency.shape[0], (adjacency.nnz + int((adjacency.diagonal() != 0).sum())) // 2
        raise SpectrumError(
            f"no certified spectrum of the graph with {n} nodes and {edges} edges (operator {operator!r}, k = {k}): "
            f"{error}"
        ) from error


def stays_on_device(n: int, how: SolverSettings) -> bool:
    """Whether components are found, and the operator of a connected graph is built, on the device."""
    return how.device != "cpu" and how.solver in ("auto", "chebyshev") and n > DENSE_LIMIT


class Merge:
    """The parts of one graph and the cut through their merged spectra."""

    def __init__(self, adjacency: sp.csr_array, settings: SpectrumSettings, how: SolverSettings) -> None:
        self.n, self.settings = adjacency.shape[0], settings
        self.rows = self.n  # of vectors
        operator, self.both = settings.operator, settings.by_magnitude
        # Pairs per component and end, a known zero mode not counted.
        self.count = settings.k + (1 if self.both or settings.drops_zeros else 0)
        self.small: list[Part] = []
        self.large: list[LargeComponent] = []
        graph = DeviceGraph(adjacency, how.device) if stays_on_device(self.n, how) else None
        smallest_node = torch.from_numpy(smallest_nodes(adjacency)) if graph is None else graph.labels()
        normalised, zero_mode = operator == "sym", None
        if graph is not None and not self.both and not bool(smallest_node.any()):
            # Connected: all nodes are in the component of node 0.
            on_device, zero_mode = graph.laplacian(operator)
            build, nodes = partial(build_operator, adjacency, operator), np.arange(self.n)
            self.large.append(LargeComponent(build, zero_mode, normalised, nodes, how, on_device))
            self.zeros = 1
        else:
            self.matrix = build_operator(adjacency, operator, less=1.0 if settings.which == "both" else 0.0)
            components = find_components(smallest_node.cpu().numpy())
            mass = None if self.both else zero_mode_mass(torch.from_numpy(degrees(adjacency)), operator).numpy()
            dense, biggest = dense_size(how.solver, self.count), components[-1].shape[1] if components else 0
            if how.solver == "dense" and biggest > DENSE_LIMIT:
                fail("solver", f"another one than 'dense' for more than {DENSE_LIMIT} connected nodes", biggest)
            small = [nodes for nodes in components if nodes.shape[1] <= dense]
            self.solve_small = partial(small_parts, self.matrix, row_bounds(adjacency, operator), mass, small)
            self.small += self.solve_small(self.count + (not self.both))
            for nodes in (nodes for group in components if group.shape[1] > dense for nodes in group):
                build = partial(_submatrix, self.matrix, nodes)
                zero_mode = None if mass is None else torch.from_numpy(np.sqrt(mass[nodes] / mass[nodes].sum()))
                self.large.append(LargeComponent(build, zero_mode, normalised, nodes, how))
            self.zeros = sum(len(nodes) for nodes in components)
        self.floor = 0.0
        self.scale = max([0.0, *(part.norm for part in self.small), *(component.scale for component in self.large)])

    def run(self) -> Spectrum:
        for component in self.large:
            component.climb(self.count)
        enlarged = 0
        # Every round takes more pairs of which there are n, the next solver, or a lower cut.
        for _ in range(ROUNDS):
            self._cut()
            available = int(self.cut.whole.available)
            if self._small_parts_end_early():
                self.count *= 2
                self.small = list(self.solve_small(self.count + 1))
                continue
            if self.large and available <= self.settings.k and available < self._obtainable(self.zeros):
                if enlarged == ENLARGEMENTS:
                    tolerance = float(self.cut.tolerance)
                    raise SpectrumError(f"more than {self.count} eigenvalues are zero within {tolerance:.1e}")
                enlarged += 1
                self.count *= 2
                for component in self.large:
                    component.enlarge(self.count)
                continue
            misses = self._certify()
            if misses is not None:
                return self._assemble(misses)
        raise SpectrumError(f"no cut could be certified in {ROUNDS} rounds")

    def _small_parts_end_early(self) -> bool:
        """Whether zeros that are dropped have used up the pairs that a dense component keeps of all that it has.

        A component has one zero mode, but weakly joined clusters give it more values within the tolerance of zero.
        """
        # The largest value that is dropped as zero.
        zero = float(self.values[0, : int(self.cut.whole.dropped)].amax()) if int(self.cut.whole.dropped) else 0.0
        return self.settings.drops_zeros and any(
            part.values.shape[1] < part.nodes.shape[1] and (part.values > zero).sum(1).min() <= self.settings.k
            for part in self.small
        )

    def _parts(self) -> list[Part]:
        return [*self.small, *(part for component in self.large for part in component.parts)]

    def _obtainable(self, zeros: int) -> int:
        """How many pairs there are to choose from: all nodes, less the zero modes where they are dropped."""
        return self.n - (zeros if self.settings.drops_zeros else 0)

    def _cut(self) -> None:
        """Merge the parts into one row of values, and cut it."""
        parts = self._parts()
        flat = np.concatenate([np.zeros(0), *(part.values.ravel() for part in parts)])
        errors = np.concatenate([np.zeros(0), *(part.errors.ravel() for part in parts)])
        first = np.concatenate([np.zeros(0, dtype=np.int64), *(part.zero_of(self.n).ravel() for part in parts)])
        # Exact zero modes by their first nodes, as in the batched path; equal values in the order of their components.
        self.order = np.lexsort((flat, first))
        norms = np.concatenate([np.zeros(0), *(np.full(part.values.size, part.norm) for part in parts)])[self.order]
        self.values, self.errors = (torch.from_numpy(row[self.order]).unsqueeze(0) for row in (flat, errors))
        norm = None
        if all(component.complete for component in self.large):
            # That of the graph also where components of smaller norm are solved by themselves.
            norms[:] = norms.max(initial=0.0)
            norm = torch.from_numpy(norms[:1] if norms.size else np.zeros(1))
        accuracy = torch.maximum(self.errors, DENSE_ACCURACY * torch.from_numpy(norms))
        size, zeros = torch.tensor([flat.size]), torch.tensor([self.zeros])
        self.exact = torch.from_numpy(first[self.order] < self.n)
        self.cut = cut(self.values, accuracy, size, self.settings, zeros, norm, self.floor)
        self.orthogonality = max((part.orthogonality for part in parts), default=0.0)

    def _certify(self) -> list[float] | None:
        """Miss probabilities of the cut in whole eigenspaces, none where all counts are proved.

        None when a component had to be solved anew.
        """
        whole = self.cut.whole
        gap, residual = float(whole.gap), float(whole.residual(self.values, self.errors))
        trouble = judge(residual, self.orthogonality, gap, self.scale)
        if trouble is not None:
            if not self.large:
                raise SpectrumError(trouble)
            for component in self.large:
                component.climb(self.count, trouble)
            return None
        sizes = np.array([part.values.size for part in self._parts()], dtype=np.int64)
        owner = np.repeat(np.arange(sizes.size), sizes)[self.order]
        kept = np.bincount(owner[whole.accepted[0].numpy()], minlength=sizes.size)
        of_large = iter(kept[len(self.small) :].tolist())
        reached = whole.merged[whole.accepted]
        reached = -reached.abs() if self.both else reached
        boundary = float(reached.max()) if reached.numel() else -np.inf
        misses: list[float] = []
        refused = False
        for component in self.large:
            counts = [next(of_large) for _ in component.parts]
            try:
                misses += component.certify(counts, boundary, float(self.cut.tolerance))
            except CountRefusedError as refusal:
                refused = True
                if not refusal.wrong and gap < NARROW_GAP * self.scale:
                    # Resolved by the solver, but too narrow to count at: both sides are one cluster from now on.
                    self.floor = 2.0 * gap
                else:
                    component.climb(self.count, str(refusal))
        return None if refused else misses

    def _assemble(self, misses: list[float]) -> Spectrum:
        final = self.cut.final
        residual, orthogonal = float(final.residual(self.values, self.errors)), self.orthogonality
        turn = float(final.turn(self.errors.masked_fill(self.exact, 0.0)))
        values, mask = final.values[0].numpy(), final.mask[0].numpy()
        count = int(mask.sum())
        parts = self._parts()
        devices = {part.vectors.device for part in parts}
        # What was left on one device is put together there, and copied once.
        device = devices.pop() if len(devices) == 1 else torch.device("cpu")
        out = torch.zeros(self.rows, self.settings.k, dtype=torch.float64, device=device)
        pairs = self.order[final.index[0, :count].numpy()]
        for part in parts:
            inside = (pairs >= 0) & (pairs < part.values.size)
            part.write(pairs[inside], out, np.flatnonzero(inside))
            pairs = pairs - part.values.size
        if not (np.isfinite(values).all() and bool(torch.isfinite(out).all())):
            raise SpectrumError("a solver returned numbers that are not finite")
        vectors = to_host(out)
        if self.both and self.large:
            kept = vectors[:, :count]
            self._orthonormalise(kept, values[:count])
            residual = float(residual_norms(self.matrix, values[:count], kept).max(initial=residual))
            orthogonal = orthogonality(kept)
            trouble = judge(residual, orthogonal, np.inf, self.scale)
            if trouble is not None:
                raise SpectrumError(trouble)
        names = {component.solver for component in self.large} | ({"dense"} if self.small else set())
        certificate = Certificate(
            solver="+".join(sorted(names, key=lambda name: (name != "dense", name))) or "dense",
            level="checked" if misses else "proved",
            residual=residual,
            orthogonality=orthogonal,
            gap=float(final.gap),
            turn=turn,
            tolerance=float(self.cut.tolerance),
            miss_probability=sum(misses),
        )
        available = self._obtainable(int(final.dropped))
        values = self.settings.moved_back(final.values, final.mask, self.cut.tolerance)[0].numpy()
        return Spectrum(values, vectors, mask, available, certificate)

    def _orthonormalise(self, vectors: np.ndarray, values: np.ndarray) -> None:
        """Make the vectors [n, m] of two ends, which were solved apart, orthonormal in place.

        They are orthogonal up to their residuals: one Newton step to the nearest orthonormal basis squares that error.
        """
        for value in np.unique(values):
            # A raw cut may keep vectors of one eigenspace from both ends.
            same = np.flatnonzero(values == value)
            if self.settings.truncation == "raw" and same.size > 1:
                vectors[:, same] = np.linalg.qr(vectors[:, same])[0]
        vectors[:] = vectors @ (1.5 * np.eye(values.size) - 0.5 * (vectors.T @ vectors))


def _submatrix(matrix: sp.csr_array, nodes: np.ndarray) -> sp.csr_array:
    """The block of a component's nodes."""
    return matrix if nodes.size == matrix.shape[0] else matrix[nodes][:, nodes].tocsr()


def to_host(tensor: Tensor) -> np.ndarray:
    """As a NumPy array; from a GPU through page-locked memory, which is several times faster."""
    if tensor.device.type != "cuda":
        return tensor.numpy()
    out = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return out.copy_(tensor).numpy()
