"""An attack on spectra: generated graphs through `prepare` and the transform, against dense float64 and symmetries.

``python -m tools.attack_spectra`` counts, over graphs with near-degenerate and extreme weights among them,

- wrong: pairs that are no eigenpairs, another number of them than the stated rule allows, a false gap;
- crash: an error other than the one line that refuses what can have no spectrum, or none where one is due;
- hang: a call that takes longer than ``LIMIT`` seconds;
- disagreement: `prepare` and the transform keep different pairs, or refuse different graphs;
- symmetry: a convolution that changes by more than 1e-9 under permutation, rotation, sign, or in a batch.

What is found is printed with seed and number, by which it comes again. The status is 1 if anything was.
"""

import argparse
import contextlib
import math
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from torch_geometric.data import Batch, Data

from gssc import DeepSetPhi, GSSConv, LaplacianSpectrum, prepare
from gssc.spectra import EmptySpectrumWarning, prepare_spectra
from gssc.spectra.certificate import Certificate
from gssc.testing import assert_close, permute_nodes, rotate_eigenspaces

LIMIT = 20
TOLERANCE = 1e-9
CHANNELS = 4
# Graphs that go through `prepare` at once, and as one batch through a convolution.
TOGETHER, BATCH = 100, 20
# The rule as docs/spectra.md states it, relative to ‖L‖; numbers this close to a limit may fall either way.
GAP, ZERO, UNDECIDED = 1e-5, 1e-11, 1e-3
# Computed values of one eigenspace are surely as close as this, relative to ‖L‖.
EQUAL = 1e-14
KINDS = ("wrong", "crash", "hang", "disagreement", "symmetry")


class HangError(Exception):
    """A call took too long."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise `HangError` after so many seconds."""

    def stop(*_: object) -> None:
        raise HangError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pattern(rng: np.random.Generator) -> tuple[int, np.ndarray]:
    """Nodes and undirected edges [2, E] of a graph, mostly of a family with degenerate spectra."""
    n = int(rng.choice([rng.integers(1, 6), rng.integers(3, 15), rng.integers(10, 33)], p=[0.2, 0.6, 0.2]))
    kind = rng.integers(9)
    u, v = np.triu_indices(n, 1)
    if kind == 0:
        keep = np.ones(u.size, dtype=bool)
    elif kind == 1:
        keep = (v - u == 1) | ((v - u == n - 1) & bool(rng.integers(2)))
    elif kind == 2:
        keep = u < rng.integers(1, 4)
    elif kind == 3:  # equal pieces, a few edges between them
        piece = int(rng.integers(1, 6))
        keep = (u // piece == v // piece) | (rng.random(u.size) < rng.choice([0.0, 0.5 / n]))
    elif kind == 4:  # bits that differ
        keep = np.isin(u ^ v, 2 ** np.arange(6))
    elif kind == 5:
        keep = (u < n // 2) & (v >= n // 2)
    elif kind == 6:  # a tree
        parent = rng.integers(0, np.maximum(np.arange(n), 1))
        keep = parent[v] == u
    else:
        keep = rng.random(u.size) < rng.choice([0.0, 0.1, 0.3, 0.8])
    edges = np.stack([u[keep], v[keep]])
    if rng.random() < 0.2:  # loops and double edges
        loops = rng.integers(0, n, (1, 2))
        edges = np.concatenate([edges, loops.repeat(2, axis=0), edges[:, : rng.integers(3)]], axis=1)
    return n, edges


def weights(rng: np.random.Generator, edges: int, gentle: bool) -> np.ndarray | None:
    """Weights [E]: none, near-degenerate, bridges, wide, or extreme (not where ``gentle``)."""
    kind = int(rng.integers(5 if gentle else 10))
    if kind == 0:
        return None
    if kind in (1, 2, 3):
        weight = 1.0 + 10.0 ** -rng.uniform(1, 17) * rng.choice([-1.0, 0.0, 1.0], edges)
        if kind == 3:  # some edges hardly count
            weight[rng.random(edges) < 0.3] *= 10.0 ** -rng.uniform(3, 20)
        return weight
    if kind == 4:
        return 10.0 ** rng.uniform(-3, 3, edges)
    size = [170.0, -170.0, 250.0, -300.0, 307.5, -315.0][rng.integers(6)]
    weight = (1.0 + rng.choice([0.0, 1e-13, 0.5], edges)) * 10.0**size
    if kind == 6:
        weight = 10.0 ** rng.choice([-170.0, 0.0, 170.0, -300.0], edges)
    elif kind == 7:
        weight = rng.choice([1.7e308, 1e308, 5e-324, 1.0], edges)
    elif kind == 8:
        weight = rng.choice([-1.0, 1.0, 2.0, 0.0], edges, p=[0.1, 0.5, 0.3, 0.1])
    elif kind == 9 and rng.random() < 0.3:
        weight[rng.random(edges) < 0.2] = rng.choice([np.nan, np.inf, -np.inf])
    return weight


def graph(rng: np.random.Generator, gentle: bool = False) -> Data:
    """A generated graph, both directions of every edge, with weights or without."""
    n, edges = pattern(rng)
    weight = weights(rng, edges.shape[1], gentle)
    once = edges[0] == edges[1]
    index = np.concatenate([edges, edges[::-1, ~once]], axis=1)
    data = Data(edge_index=torch.from_numpy(index), num_nodes=n)
    if weight is not None:
        data.edge_weight = torch.from_numpy(np.concatenate([weight, weight[~once]]))
    return data


def transform_of(rng: np.random.Generator) -> LaplacianSpectrum:
    """Settings of a spectrum; ``raw`` in few cases, as it promises less."""
    operator = str(rng.choice(["sym", "combinatorial", "adjacency"]))
    zero_modes, truncation = str(rng.choice(["keep", "drop"])), str(rng.choice(["eigenspace", "raw"], p=[0.95, 0.05]))
    return LaplacianSpectrum(int(rng.integers(1, 17)), operator, zero_modes, truncation)


@dataclass
class Truth:
    """The operator [n, n] of a graph over 2^``exponent``, all its eigenvalues, its norm, its components."""

    matrix: np.ndarray
    values: np.ndarray
    norm: float
    components: int
    exponent: int


def truth(data: Data, operator: str) -> Truth | None:
    """Dense float64 with nothing of the package; None for a graph that must be refused."""
    n, (u, v) = data.num_nodes, data.edge_index.numpy()
    w = data.edge_weight.numpy() if "edge_weight" in data else np.ones(u.size)
    if not np.isfinite(w).all():
        return None
    summed = np.zeros((n, n))
    np.add.at(summed, (u, v), w / 2.0**10)
    if operator != "adjacency" and (summed < 0).any():
        return None
    if np.abs(summed).sum() > np.finfo(np.float64).max / 2.0**11:
        return None
    largest = float(np.abs(w).max(initial=0.0))
    exponent = int(np.frexp(largest)[1]) if largest else 0
    a, b = np.zeros((n, n)), np.zeros((n, n))
    if operator == "sym":  # of the weights as they are: a leaf on a tiny edge counts as much as any
        np.add.at(b, (u, v), w)
        degree, exponent = b.sum(1), 0
        root = np.sqrt(np.where(degree > 0, degree, 1.0))
        a = b / root[:, None] / root
        matrix = np.diag((degree > 0).astype(float)) - np.maximum(a, a.T)
    else:
        np.add.at(a, (u, v), np.ldexp(w, -exponent))
        b, matrix = a, a if operator == "adjacency" else np.diag(a.sum(1)) - a
    reach = np.linalg.matrix_power(((b != 0) | np.eye(n, dtype=bool)).astype(float), 1)
    for _ in range(max(1, math.ceil(math.log2(n + 1)))):
        reach = ((reach @ reach) > 0).astype(float)
    values = np.linalg.eigvalsh(matrix)
    # Loops cancel in Laplacians, not their rounding.
    terms = {"adjacency": 0.0, "sym": float(b.any()), "combinatorial": float(b.sum(1).max(initial=0.0))}
    norm = max(terms[operator], float(np.abs(values).max(initial=0.0)))
    return Truth(matrix, values, norm, len(np.unique(reach, axis=0)), exponent)


def close_to_a_limit(value: float, limit: float) -> bool:
    """Whether rounding may put a value on either side of a limit."""
    return abs(value - limit) <= UNDECIDED * limit


def expected_count(spectrum: LaplacianSpectrum, exact: Truth) -> int | None:
    """How many pairs the rule keeps, written as loops over all eigenvalues; None where a number lies on a limit."""
    values, norm, k = exact.values, exact.norm, spectrum.k
    steps = np.concatenate([np.diff(values), np.diff(np.sort(np.abs(values))), np.abs(values)])
    if any(close_to_a_limit(step, limit * norm) for step in steps for limit in (GAP, ZERO)):
        return None
    laplacian, zeros = spectrum.operator != "adjacency", exact.components
    if laplacian:
        unclear = int((np.abs(values) <= ZERO * norm).sum()) != zeros
        first = 0
        if spectrum.zero_modes == "drop":
            first = zeros
            while unclear and first < values.size and values[first] - values[max(first - 1, 0)] <= GAP * norm:
                first += 1
            if unclear:
                first = max(first, int((np.abs(values) <= ZERO * norm).sum()))
        order = list(range(first, values.size))
        below = list(range(first))
    else:
        unclear, below = True, []
        groups = np.concatenate([[0], np.cumsum(np.diff(np.sort(np.abs(values))[::-1]) < -GAP * norm)])
        ranked = np.argsort(-np.abs(values), kind="stable")
        rank = dict(zip(ranked.tolist(), groups.tolist(), strict=True))
        order = sorted(range(values.size), key=lambda i: (rank[i], -np.sign(values[i]), -abs(values[i])))
    for count in range(min(k, len(order)), 0, -1):
        kept, dropped = order[:count], order[count:]
        if not dropped or (laplacian and not below and count == zeros and not unclear):
            return count
        if min(abs(values[i] - values[j]) for i in kept for j in dropped) > GAP * norm:
            return count
    if laplacian and spectrum.zero_modes == "keep" and values.size:
        one = LaplacianSpectrum(max(1, k - 1), spectrum.operator, "drop")
        others = expected_count(one, exact)
        return None if others is None else 1 + min(others, k - 1)
    return 0


@dataclass
class Found:
    """What came out for one graph: values [K], vectors [n, K], mask [K], certificate."""

    values: np.ndarray
    vectors: np.ndarray
    mask: np.ndarray
    certificate: Certificate


def judge(found: Found, spectrum: LaplacianSpectrum, exact: Truth) -> str | None:
    """What is wrong with a spectrum, if anything."""
    count, norm = int(found.mask.sum()), exact.norm
    values, vectors = np.ldexp(found.values[:count], -exact.exponent), found.vectors[:, :count]
    if not (np.isfinite(values).all() and np.isfinite(vectors).all() and found.mask[:count].all()):
        return "not finite, or gaps in the mask"
    if found.values[count:].any() or found.vectors[:, count:].any():
        return "numbers where masked"
    # Eigenvalues of tiny weights have as few digits as these.
    slack = 3.0 * ZERO * norm + float(np.ldexp(1.0, -1074 - exact.exponent))
    if np.abs(vectors.T @ vectors - np.eye(count)).max(initial=0.0) > 1e-10:
        return "not orthonormal"
    residual = np.linalg.norm(exact.matrix @ vectors - vectors * values, axis=0).max(initial=0.0)
    if residual > slack:
        return f"residual {residual:.1e} at norm {norm:.1e}"
    # Each value kept stands for another eigenvalue: the nearest of those left.
    left = list(exact.values)
    for value in np.sort(values):
        nearest = min(range(len(left)), key=lambda i: abs(left[i] - value))
        if abs(left.pop(nearest) - value) > slack:
            return f"{value:.3e} is no eigenvalue"
    if spectrum.truncation == "raw":
        across = min((abs(a - b) for a in values for b in left), default=math.inf)
        parted = spectrum.zero_modes == "keep" and across <= EQUAL * norm
        return "no turn of a cut through an eigenspace" if parted and found.certificate.turn < 1.0 else None
    wanted = expected_count(spectrum, exact)
    if wanted is None:
        return None
    if count != wanted:
        return f"{count} pairs instead of {wanted}"
    one_for_all = spectrum.zero_modes == "keep" and spectrum.operator != "adjacency" and exact.components > 1
    if count and not (one_for_all or (spectrum.zero_modes == "drop" and spectrum.operator != "adjacency")):
        gap = min((abs(a - b) for a in values for b in left), default=math.inf)
        stated = float(np.ldexp(found.certificate.gap, -exact.exponent))
        # Where one mode stands for all, the others of λ = 0 are not a gap's other side.
        if abs(gap - stated) > slack and not (gap <= slack and values[0] == 0.0):
            return f"gap {stated:.3e} instead of {gap:.3e}"
    if not found.certificate.turn <= 1e-9:
        return f"turn {found.certificate.turn:.1e}"
    return None


def attempt(run: Callable[[], Any]) -> tuple[str, Any]:
    """``"fine"`` and what ``run`` returns, ``"refused"`` and the line, or the kind of failure and what it says."""
    try:
        with within(LIMIT), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", EmptySpectrumWarning)
            return "fine", run()
    except HangError as error:
        return "hang", str(error)
    except ValueError as error:
        line = str(error)
        fine = "\n" not in line and len(line) <= 300 and ": expected " in line
        # A graph of a dataset is named by its number.
        return ("refused" if fine else "crash"), f"ValueError: {line.replace(' of graph 0', '')[:300]}"
    except Exception as error:  # whatever it is, it is what the attack looks for
        return "crash", f"{type(error).__name__}: {str(error)[:300]}"


def through_prepare(graphs: list[Data], spectrum: LaplacianSpectrum) -> list[Found]:
    """The spectra of all at once."""
    solved = prepare_spectra(graphs, spectrum)
    flat, ptr = solved.flat, solved.ptr.tolist()
    return [
        Found(
            flat.eigvals[g].numpy(),
            flat.eigvecs[ptr[g] : ptr[g + 1]].numpy(),
            flat.eigmask[g].numpy(),
            solved.certificate(g),
        )
        for g in range(len(graphs))
    ]


def through_transform(data: Data, spectrum: LaplacianSpectrum) -> Found:
    """The spectrum of one graph by itself."""
    out = spectrum.spectrum(data)
    return Found(out.values, out.vectors, out.mask, out.certificate)


class Attack:
    """Counts, and says, what is found."""

    def __init__(self, seed: int, say: Callable[[str], None]) -> None:
        self.seed, self.say, self.found = seed, say, Counter[str]()
        self.kept, self.refused = 0, 0

    def report(self, kind: str, what: str, number: int, about: object) -> None:
        """Count something found, and say the first of its kind."""
        self.found[kind] += 1
        if self.found[kind] <= 10:
            self.say(f"{kind} (seed {self.seed}, number {number}): {what}; {about}")

    def against_dense(self, number: int, found: Found, spectrum: LaplacianSpectrum, exact: Truth, path: str) -> None:
        """Judge one spectrum."""
        trouble = judge(found, spectrum, exact)
        self.kept += int(found.mask.sum())
        if trouble is not None:
            self.report("wrong", f"{path}: {trouble}", number, spectrum)

    def prepare(self, number: int) -> None:
        """`TOGETHER` graphs at once, those that must be refused one by one."""
        rng = np.random.default_rng([self.seed, 0, number])
        spectrum = transform_of(rng)
        graphs = [graph(rng) for _ in range(TOGETHER)]
        exact = [truth(data, spectrum.operator) for data in graphs]
        good = [g for g in range(TOGETHER) if exact[g] is not None]
        state, found = attempt(partial(through_prepare, [graphs[g] for g in good], spectrum))
        if state == "fine":
            for g, one in zip(good, found, strict=True):
                self.against_dense(number, one, spectrum, exact[g], f"prepare, graph {g}")  # type: ignore[arg-type]
        else:
            self.report("hang" if state == "hang" else "crash", f"prepare: {found}", number, spectrum)
        for g in set(range(TOGETHER)) - set(good):
            state, found = attempt(partial(through_prepare, [graphs[g]], spectrum))
            self.refused += state == "refused"
            if state != "refused":
                what = f"prepare took graph {g}" if state == "fine" else found
                self.report("hang" if state == "hang" else "crash", what, number, spectrum)

    def transform(self, number: int) -> None:
        """Graphs one by one, beside the same through `prepare`."""
        rng = np.random.default_rng([self.seed, 1, number])
        spectrum = transform_of(rng)
        graphs = [graph(rng) for _ in range(TOGETHER)]
        alone = [attempt(partial(through_transform, data, spectrum)) for data in graphs]
        fine = [g for g, (state, _) in enumerate(alone) if state == "fine"]
        state, many = attempt(partial(through_prepare, [graphs[g] for g in fine], spectrum))
        if state != "fine":
            self.report("disagreement", f"the transform took all of these, prepare: {many}", number, spectrum)
        together = dict(zip(fine, many, strict=True)) if state == "fine" else {}
        for g, data in enumerate(graphs):
            exact = truth(data, spectrum.operator)
            state, one = alone[g]
            if state in ("crash", "hang"):
                self.report(state, f"transform: {one}", number, spectrum)
            elif state == "refused" or exact is None:
                self.refused += 1
                if state != "refused" or exact is not None:
                    self.report("crash", f"transform, graph {g}: {state} {one}"[:300], number, spectrum)
                if attempt(partial(through_prepare, [data], spectrum)) != (state, one) and state == "refused":
                    self.report("disagreement", f"only the transform refused graph {g}: {one}", number, spectrum)
            else:
                self.against_dense(number, one, spectrum, exact, f"transform, graph {g}")
                trouble = difference(one, together[g], spectrum, exact) if g in together else None
                if trouble is not None:
                    self.report("disagreement", f"graph {g}: {trouble}", number, spectrum)

    def symmetry(self, number: int) -> None:
        """A convolution of `BATCH` graphs: permuted, rotated, with other signs, and one by one."""
        rng = np.random.default_rng([self.seed, 2, number])
        spectrum = transform_of(rng)
        spectrum.truncation = "eigenspace"
        torch.manual_seed(number)
        phi, conv = DeepSetPhi(CHANNELS), GSSConv(CHANNELS)
        graphs = [graph(rng, gentle=True) for _ in range(BATCH)]
        for data in graphs:
            data.edge_weight = data.get("edge_weight", torch.ones(data.num_edges))
            data.x = torch.from_numpy(rng.standard_normal((data.num_nodes, CHANNELS)))
        places = [torch.randperm(data.num_nodes) for data in graphs]

        def outputs(batch: Data) -> list[torch.Tensor]:
            out = conv(batch.x, phi(batch.eigvals, batch.eigmask), batch.eigvecs, batch.batch)
            return list(out.split([data.num_nodes for data in graphs]))

        def run() -> None:
            permuted = [permute_nodes(data, place) for data, place in zip(graphs, places, strict=True)]
            ready = prepare([*graphs, *permuted], spectrum, progress=False)
            batch, moved = Batch.from_data_list(ready[:BATCH]), Batch.from_data_list(ready[BATCH:])
            flipped = batch.clone()
            flipped.eigvecs = batch.eigvecs * (torch.randint(0, 2, (spectrum.k,)) * 2 - 1)
            expected = outputs(batch)
            others = {
                "permuted": [out[place] for out, place in zip(outputs(moved), places, strict=True)],
                "rotated": outputs(rotate_eigenspaces(batch)),
                "other signs": outputs(flipped),
                "alone": [
                    conv(data.x, phi(data.eigvals, data.eigmask), data.eigvecs, torch.zeros(data.num_nodes).long())
                    for data in ready[:BATCH]
                ],
            }
            for what, actual in others.items():
                for g, (one, other) in enumerate(zip(actual, expected, strict=True)):
                    assert_close(one, other, f"graph {g} {what}", TOLERANCE)

        with torch.no_grad():
            state, what = attempt(run)
        if state != "fine":
            kind = "symmetry" if str(what).startswith("AssertionError") else "hang" if state == "hang" else "crash"
            self.report(kind, str(what), number, spectrum)


def difference(one: Found, other: Found, spectrum: LaplacianSpectrum, exact: Truth) -> str | None:
    """How the transform's spectrum differs from that of `prepare`, if it does."""
    if not np.array_equal(one.mask, other.mask):
        return f"transform keeps {one.mask.sum()}, prepare {other.mask.sum()}"
    norm, values = exact.norm, [np.ldexp(found.values, -exact.exponent) for found in (one, other)]
    if np.abs(values[0] - values[1]).max(initial=0.0) > 1e-12 * norm:
        return "eigenvalues differ"
    gaps = [float(np.ldexp(found.certificate.gap, -exact.exponent)) for found in (one, other)]
    if not (gaps[0] == gaps[1] or abs(gaps[0] - gaps[1]) <= 1e-12 * norm):
        return f"gap {gaps[0]:.3e}, prepare {gaps[1]:.3e}"
    # A raw cut promises the zero modes that it keeps, one by one, and the eigenspaces that it does not part.
    unparted = one.mask
    if spectrum.truncation == "raw":
        unparted = whole_clusters(values[0], one.mask, exact)
        zeros = exact.components if spectrum.zero_modes == "keep" and spectrum.operator != "adjacency" else 0
        worst = np.abs(one.vectors[:, :zeros] - other.vectors[:, :zeros]).max(initial=0.0)
        if worst > TOLERANCE:
            return f"zero modes differ by {worst:.1e}"
    gains = [np.cos(value / max(norm, 1e-300)) * unparted for value in values]
    kernels = [(found.vectors * gain) @ found.vectors.T for found, gain in zip((one, other), gains, strict=True)]
    worst = np.abs(kernels[0] - kernels[1]).max(initial=0.0)
    return f"kernels differ by {worst:.1e}" if worst > TOLERANCE else None


def whole_clusters(values: np.ndarray, mask: np.ndarray, exact: Truth) -> np.ndarray:
    """Which of the pairs kept [K] are of a cluster, parted from others by the least gap, that is kept as a whole."""
    limits = exact.values[1:][np.diff(exact.values) > GAP * exact.norm] - GAP * exact.norm / 2
    cluster = np.searchsorted(limits, values)
    kept = np.bincount(cluster[mask], minlength=limits.size + 1)
    there = np.bincount(np.searchsorted(limits, exact.values), minlength=limits.size + 1)
    return mask & (kept == there)[cluster]


def main(arguments: list[str] | None = None) -> int:
    """Run the three parts; the status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prepare", type=int, default=100_000, help="graphs through prepare")
    parser.add_argument("--transform", type=int, default=20_000, help="graphs through the transform and prepare")
    parser.add_argument("--symmetry", type=int, default=10_000, help="graphs through a convolution")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    before, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        with Progress(disable=options.quiet) as bar:
            attack = Attack(options.seed, partial(bar.console.print, markup=False, highlight=False, soft_wrap=True))
            for part, step in (("prepare", TOGETHER), ("transform", TOGETHER), ("symmetry", BATCH)):
                task = bar.add_task(part, total=getattr(options, part))
                for number in range(-(-getattr(options, part) // step)):
                    getattr(attack, part)(number)
                    bar.advance(task, step)
    finally:
        torch.set_default_dtype(before)
        torch.set_num_threads(threads)
    counts = ", ".join(f"{attack.found[kind]} {kind}" for kind in KINDS)
    print(
        f"{options.prepare:,} graphs through prepare, {options.transform:,} through the transform, "
        f"{options.symmetry:,} for symmetry (seed {options.seed}): {counts}; "
        f"{attack.kept:,} pairs kept, {attack.refused:,} graphs refused"
    )
    return int(bool(attack.found))


if __name__ == "__main__":
    sys.exit(main())
