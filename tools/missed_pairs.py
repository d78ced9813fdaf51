"""How often the check of a count notices that a solver has missed pairs: the level ``checked``, measured.

``python -m tools.missed_pairs`` takes graphs whose spectra are known, dense or in closed form, leaves out one to three
of the pairs below a cut as a solver that misses them would, and asks the check. A check that passes them is a miss. The
same check must pass where nothing was left out; where it does not, it has refused a complete spectrum.
"""

import argparse
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch
from rich.progress import Progress

from gssc.spectra.certificate import CountRefusedError, Pairs
from gssc.spectra.operators import build_operator
from gssc.spectra.solver_choice import End, LargeComponent, SolverSettings

KEPT = 16
# Residuals of the pairs handed over, as of the iterative solvers, relative to the gap.
ACCURACY = 1e-4


def graphs(rng: np.random.Generator, size: int) -> dict[str, nx.Graph]:
    """Connected graphs of about so many nodes, of the kinds that need iterative solvers when they are large."""
    side, seed = round(size**0.5), int(rng.integers(1 << 30))
    weak = nx.disjoint_union(
        nx.random_regular_graph(6, size // 2, seed), nx.random_regular_graph(6, size // 2, seed + 1)
    )
    weak.add_edge(0, size // 2, weight=10.0 ** rng.uniform(-4, 0))
    drawn = {
        "random": nx.gnm_random_graph(size, 5 * size, seed),
        "regular": nx.random_regular_graph(5, size, seed),
        "power law": nx.barabasi_albert_graph(size, 3, seed),
        "grid": nx.grid_2d_graph(side, side + int(rng.integers(4))),
        "two halves": weak,
        "small world": nx.watts_strogatz_graph(size, 6, 0.1, seed),
    }
    return {name: g.subgraph(max(nx.connected_components(g), key=len)).copy() for name, g in drawn.items()}


class Trial:
    """One graph with its whole spectrum, and the place of the widest gap around `KEPT` pairs."""

    def __init__(self, graph: nx.Graph, operator: str) -> None:
        adjacency = sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=np.float64))
        self.matrix = build_operator(adjacency, operator)  # type: ignore[arg-type]
        values, vectors = np.linalg.eigh(self.matrix.toarray())
        # The zero mode is known beforehand; the check looks for what lies above it.
        self.zero_mode, self.values, self.vectors = torch.from_numpy(vectors[:, 0]), values[1:], vectors[:, 1:]
        self.kept = KEPT // 2 + int(np.argmax(np.diff(self.values[KEPT // 2 - 1 : 2 * KEPT])))
        self.normalised = operator == "sym"

    def passes(self, left_out: np.ndarray, seed: int) -> bool:
        """Whether the check accepts the pairs below the cut, and some beyond it, without those that are left out."""
        rng = np.random.default_rng(seed)
        found = np.setdiff1d(np.arange(self.kept + KEPT // 2), left_out)
        low, high = self.values[self.kept - 1], self.values[self.kept]
        noise = rng.standard_normal((self.matrix.shape[0], found.size))
        vectors = self.vectors[:, found] + noise * ACCURACY * (high - low) / np.linalg.norm(noise, axis=0)
        vectors -= self.zero_mode.numpy()[:, None] * (self.zero_mode.numpy() @ vectors)
        vectors = np.linalg.qr(vectors)[0]
        residuals = np.linalg.norm(self.matrix @ vectors - vectors * self.values[found], axis=0)
        pairs = Pairs(self.values[found], vectors, residuals, 0.0)
        settings = SolverSettings("chebyshev", "cpu", seed)
        nodes = np.arange(self.matrix.shape[0])
        component = LargeComponent(lambda: self.matrix, self.zero_mode, self.normalised, nodes, settings)
        try:
            kept = self.kept - left_out.size
            component._certify_end(End(1.0, replace(pairs), None), kept, float(low), float(high), cheap=False)
        except CountRefusedError:
            return False
        return True


def main(arguments: list[str] | None = None) -> int:
    """Count; the status is 1 if anything was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=int, default=10, help="graphs of each kind and operator")
    parser.add_argument("--trials", type=int, default=20, help="ways to leave out pairs of each")
    parser.add_argument("--size", type=int, default=400, help="nodes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rng = np.random.default_rng(options.seed)
    trials = missed = complete = refused = 0
    with Progress(disable=options.quiet) as bar:
        task = bar.add_task("graphs", total=12 * options.graphs)
        for _ in range(options.graphs):
            for graph in graphs(rng, options.size).values():
                for operator in ("sym", "combinatorial"):
                    trial = Trial(graph, operator)
                    complete += 1
                    refused += not trial.passes(np.empty(0, dtype=np.int64), int(rng.integers(1 << 30)))
                    for _ in range(options.trials):
                        left_out = rng.choice(trial.kept, int(rng.integers(1, 4)), replace=False)
                        trials += 1
                        missed += trial.passes(left_out, int(rng.integers(1 << 30)))
                    bar.advance(task)
    print(
        f"{missed} of {trials:,} incomplete spectra passed the check (below {3.0 / max(trials, 1):.1e} with 95 %), "
        f"{refused} of {complete:,} complete ones were refused"
    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
