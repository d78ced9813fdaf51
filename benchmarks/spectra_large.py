"""The 32 smallest eigenpairs of one large normalised Laplacian: `solve` against SciPy's eigsh and torch.lobpcg.

    python -m benchmarks.spectra_large --device cpu --out large.csv --plot large.png

Ours is timed from the adjacency matrix to the certified spectrum on the host; the peers are given the operator, on
their device, and stop at a residual of 1e-5 (``torch.lobpcg-default``: wherever its defaults stop). Two more stand for
other preprocessing: ``eigh-full``, all eigenpairs of the dense operator, and ``rrwp``, the dense relative random-walk
probabilities of Grit, [n, n, 21] in float32, left on the device; both only up to the size that memory and patience
allow (`DENSE_PEERS`). ``expander`` is the random regular graph of Exphormer. Every row runs in a child process under a
time limit and is written as soon as it is known.
``value_error`` is the largest difference of an eigenvalue from ours; a peer that misses members of a cluster shows
there. ``peak_mb`` is the rise of memory while the method ran (`peak_memory`), on the GPU where it runs there.
"""

import argparse
import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from benchmarks.graphs import GRAPHS
from benchmarks.harness import append, peak_memory
from benchmarks.plots import spectra_figure
from benchmarks.results import read_results
from gssc.environment import hardware
from gssc.spectra import ExpanderGraph
from gssc.spectra.certificate import residual_norms
from gssc.spectra.operators import build_operator
from gssc.spectra.solve import solve

OURS = ("gssc", "gssc-dense", "gssc-shift_invert", "gssc-chebyshev", "gssc-lobpcg")
PEERS = ("eigsh-SA", "torch.lobpcg", "torch.lobpcg-default", "eigh-full", "rrwp", "expander")
# Largest n of the peers that are not eigenpairs, or all of them: on the host, on a GPU.
DENSE_PEERS = {"eigh-full": (4_000, 10_000), "rrwp": (4_000, 20_000), "expander": (10**7, 10**7)}
RRWP_STEPS = 21
RESIDUAL = 1e-5
REPEAT_BELOW = 3.0

Pairs = tuple[np.ndarray, np.ndarray]


def run_eigsh(matrix: sp.csr_array, k: int, device: str) -> Callable[[], Pairs]:
    """ARPACK from the small end, on L + I, so that its relative tolerance is an absolute one."""
    from scipy.sparse.linalg import eigsh

    shifted = (matrix + sp.eye_array(matrix.shape[0])).tocsr()
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])

    def run() -> Pairs:
        values, vectors = eigsh(shifted, k, which="SA", v0=start, tol=RESIDUAL)
        return values - 1.0, vectors

    return run


def run_torch_lobpcg(matrix: sp.csr_array, k: int, device: str, default: bool = False) -> Callable[[], Pairs]:
    """torch.lobpcg in float64 on a COO tensor, which is what it is written for."""
    coo = matrix.tocoo()
    index = torch.as_tensor(np.stack([coo.row, coo.col]).astype(np.int64))
    tensor = torch.sparse_coo_tensor(index, torch.as_tensor(coo.data), matrix.shape, check_invariants=False)
    tensor = tensor.coalesce().to(device)
    generator = torch.Generator(device=device).manual_seed(0)
    start = torch.randn(matrix.shape[0], k, dtype=torch.float64, device=device, generator=generator)
    options: dict[str, Any] = {} if default else {"tol": RESIDUAL / 2.0, "niter": 1000}

    def run() -> Pairs:
        values, vectors = torch.lobpcg(tensor, k=k, X=start, largest=False, **options)
        return values.cpu().numpy(), vectors.cpu().numpy()

    return run


def run_eigh(adjacency: sp.csr_array, device: str) -> Pairs:
    """All eigenpairs by a dense solver, as other preprocessing does it."""
    dense = torch.as_tensor(build_operator(adjacency, "sym").toarray(), device=device)
    values, vectors = torch.linalg.eigh(dense)
    return values.cpu().numpy(), vectors.cpu().numpy()


def run_rrwp(adjacency: sp.csr_array, device: str) -> torch.Tensor:
    """[I, P, P², …], P = D⁻¹A, [n, n, 21]."""
    step = torch.as_tensor(adjacency.toarray(), dtype=torch.float32, device=device)
    step /= step.sum(dim=1, keepdim=True).clamp_min(1.0)
    out = torch.empty(RRWP_STEPS, *step.shape, device=device)
    torch.eye(step.shape[0], out=out[0])
    for number in range(1, RRWP_STEPS):
        torch.matmul(out[number - 1], step, out=out[number])
    return out.permute(1, 2, 0)


def run_expander(adjacency: sp.csr_array, device: str) -> torch.Tensor:
    """Exphormer's random regular graph, drawn on the host."""
    return ExpanderGraph().rows(torch.tensor([adjacency.shape[0]])).to(device)


def feasible(method: str, n: int, device: str) -> bool:
    """Whether a method is run at this size at all."""
    return n <= DENSE_PEERS[method][device != "cpu"] if method in DENSE_PEERS else True


DENSE = {"eigh-full": run_eigh, "rrwp": run_rrwp, "expander": run_expander}


@lru_cache(maxsize=1)
def adjacency_of(graph: str, n: int) -> sp.csr_array:
    """The graph, generated once for all methods that are run on it in turn."""
    return GRAPHS[graph](n)


def measure(graph: str, n: int, method: str, k: int, device: str, truth: np.ndarray | None) -> dict[str, Any]:
    """One row: time (the median of three where that is quick), accuracy, certificate."""
    adjacency = adjacency_of(graph, n)
    row: dict[str, Any] = {"n": adjacency.shape[0], "edges": adjacency.nnz // 2, "status": "ok"}
    if method in OURS:
        solver: Any = method.partition("-")[2] or "auto"
        # Loads libraries; on a GPU it also compiles the kernels, which ones depends on the matrix.
        warm = adjacency if device != "cpu" else GRAPHS[graph](2_500)

        def ours(a: sp.csr_array = adjacency) -> Any:
            return solve(a, "sym", k, solver=solver, device=device)

        if solver != "dense":
            ours(warm)
        with peak_memory(device) as peak:
            spent, spectrum = timed(ours, device)
        certificate = spectrum.certificate
        count = int(spectrum.mask.sum())
        row |= {"certificate": certificate.level, "miss_probability": certificate.miss_probability}
        row |= {"pairs": count, "solver": certificate.solver, "residual": certificate.residual}
        values = spectrum.values[:count]
    elif method in DENSE_PEERS:
        dense: Callable[[sp.csr_array, str], Any] = DENSE[method]
        dense(GRAPHS[graph](100), device)
        with peak_memory(device) as peak:
            spent, out = timed(lambda: dense(adjacency, device), device)
        values = out[0][:k] if method == "eigh-full" else np.zeros(0)
        row["pairs"] = out[0].size if method == "eigh-full" else 0
        truth = truth if method == "eigh-full" else None
    else:
        matrix = build_operator(adjacency, "sym")
        prepare = run_eigsh if method == "eigsh-SA" else run_torch_lobpcg
        extra = {"default": True} if method.endswith("default") else {}
        if method != "eigsh-SA":
            prepare(build_operator(GRAPHS[graph](2_500), "sym"), 4, device, **extra)()
        run = prepare(matrix, k, device, **extra)
        with peak_memory(device) as peak:
            spent, (values, vectors) = timed(run, device)
        row |= {"residual": float(residual_norms(matrix, values, vectors).max()), "pairs": values.size}
        if not row["residual"] <= 2.0 * RESIDUAL:
            row["status"] = "no convergence"
    if truth is not None:
        same = min(truth.size, values.size)
        row["value_error"] = float(np.abs(np.sort(values)[:same] - truth[:same]).max(initial=0.0))
    low, high = np.percentile(spent, [20, 80])
    row |= {"seconds": statistics.median(spent), "p20": float(low), "p80": float(high)}
    return row | {"peak_mb": peak["mb"], "values": np.sort(values)}


def timed(run: Callable[[], Any], device: str) -> tuple[list[float], Any]:
    """Seconds of each run, and the last result."""
    spent: list[float] = []
    while not spent or (len(spent) < 3 and spent[0] < REPEAT_BELOW):
        begin = time.perf_counter()
        out = run()
        if device != "cpu":
            torch.cuda.synchronize()
        spent.append(time.perf_counter() - begin)
    return spent, out


def work(pipe: Connection) -> None:
    """The child process: measure what is asked for, until told to stop."""
    warnings.simplefilter("ignore")
    while (task := pipe.recv()) is not None:
        try:
            pipe.send(measure(**task))
        except Exception as error:  # a peer may fail in any way, and the row says so
            pipe.send({"status": f"{type(error).__name__}: {str(error).splitlines()[0][:120] if str(error) else ''}"})


class Child:
    """A process that measures, replaced when a task runs over its limit."""

    def __init__(self) -> None:
        self.process: Any = None

    def ask(self, task: dict[str, Any], limit: float) -> dict[str, Any]:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, other = context.Pipe()
            self.process = context.Process(target=work, args=(other,), daemon=True)
            self.process.start()
            other.close()
        self.pipe.send(task)
        try:
            if self.pipe.poll(limit):
                return self.pipe.recv()
            out = {"status": f"time limit {limit:.0f} s"}
        except EOFError:
            out = {"status": "process died"}
        self.process.kill()
        self.process.join()
        self.process = None
        return out

    def close(self) -> None:
        if self.process is not None:
            self.pipe.send(None)
            self.process.join(10)


def result(row: dict[str, Any]) -> dict[str, object]:
    """A row in the form of the results file."""
    note = [row["status"]]
    note += [f"{key} {shorten(row[key])}" for key in ("residual", "value_error") if key in row]
    if "certificate" in row:
        doubt = f" (miss probability {row['miss_probability']:.0e})" if row["miss_probability"] else ""
        note.append(f"{row['certificate']}{doubt} by {row['solver']}")
    ours = row["method"] == "gssc"
    return {
        "benchmark": "spectra_large",
        "workload": f"{row['graph']} n={row['n']} edges={row.get('edges', '')} k={row['k']} sym",
        "variant": row["method"],
        **{
            f"{name}_ms": shorten(1e3 * row[key]) if key in row else ""
            for name, key in (("p20", "p20"), ("p50", "seconds"), ("p80", "p80"))
        },
        "peak_mb": shorten(row["peak_mb"]) if "peak_mb" in row else "",
        "baseline": "" if ours else "gssc",
        "ratio": shorten(row["ratio"]) if "ratio" in row and not ours else "",
        "note": "; ".join(str(part) for part in note),
    }


def plot(table: Path, picture: Path, device: str = "cpu") -> None:
    """Seconds against n on this device, a panel per graph, a line per method: the last rows that succeeded."""
    figure = spectra_figure([row for row in read_results(table) if row.device == hardware(device)])
    if figure is not None:
        figure.savefig(picture, dpi=150)


def main(arguments: list[str] | None = None) -> None:
    """Measure, write the table row by row, print it, plot it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sizes", type=int, nargs="+", help="default: 20000 100000, or 10000 60000 1000000 on a GPU")
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS))
    parser.add_argument("--methods", nargs="+", choices=[*OURS, *PEERS])
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--limit", type=float, help="seconds per row; default: 120, or 25 on a GPU")
    parser.add_argument("--budget", type=float, help="seconds in all, rows beyond are left out; default: none, or 330")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--plot", type=Path, help="PNG file")
    options = parser.parse_args(arguments)
    gpu = options.device != "cpu"
    sizes = options.sizes or ([10_000, 60_000, 1_000_000] if gpu else [20_000, 100_000])
    graphs = options.graphs or (
        ["random", "grid", "geometric", "powerlaw"] if gpu else ["geometric", "grid", "powerlaw"]
    )
    peers = ["torch.lobpcg", "torch.lobpcg-default"] if gpu else ["eigsh-SA", "torch.lobpcg"]
    methods = options.methods or ["gssc", *peers]
    limit = options.limit or (25.0 if gpu else 120.0)
    budget = options.budget or (330.0 if gpu else float("inf"))
    begin = time.perf_counter()
    rows: list[dict[str, Any]] = []
    child = Child()
    for n in sizes:
        for graph in graphs:
            reference: dict[str, Any] = {}
            for method in methods:
                if not feasible(method, n, options.device):
                    continue
                row: dict[str, Any] = {"graph": graph, "n": n, "k": options.k, "method": method}
                left = budget - (time.perf_counter() - begin)
                if left < 1.0:
                    row["status"] = "not run: no time left"
                else:
                    task = {"graph": graph, "n": n, "method": method, "k": options.k, "device": options.device}
                    # Generating the graph and starting the process are not the method's time.
                    allowed = min(left, limit + 20.0)
                    row |= child.ask({**task, "truth": reference.get("values")}, allowed)
                if method == "gssc" and row["status"] == "ok":
                    reference = row
                if "seconds" in row and "seconds" in reference:
                    row["ratio"] = row["seconds"] / reference["seconds"]
                rows.append(row)
                append(options.out, [result(row)], options.device)
                print(line(row), flush=True)
    child.close()
    print("\n" + "\n".join(line(row) for row in rows))
    if options.plot is not None:
        plot(options.out, options.plot, options.device)


def shorten(value: object) -> object:
    """Four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else value


def line(row: dict[str, Any]) -> str:
    """One row as text."""
    keys = ("graph", "n", "edges", "method", "seconds", "peak_mb", "ratio", "residual", "value_error")
    shown = {key: shorten(row.get(key, "")) for key in (*keys, "certificate", "status")}
    return (
        f"{shown['graph']:>10} {shown['n']:>8} {shown['edges']:>9} {shown['method']:<21} {shown['seconds']:>8} s "
        f"{shown['peak_mb']:>8} MB ratio {shown['ratio']:>6}  residual {shown['residual']:>9}  "
        f"error {shown['value_error']:>9} {shown['certificate']:<8} {shown['status']}"
    )


if __name__ == "__main__":
    main()
