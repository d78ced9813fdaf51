"""All spectra of 12,000 molecule-like graphs: `prepare` against loops over the graphs.

    python -m benchmarks.spectra_small --out FILE.csv

Both start from the same PyG dataset and end with a collated dataset that carries eigenvalues, eigenvectors, mask,
random-walk encodings and degrees. ``numpy_loop`` is plain dense NumPy (SciPy for the connected components), one graph
after the other. The two sides compute the same things, each in the way that is natural to it:

* all eigenpairs in float64, exact zero modes from the connected components, whole eigenspaces up to K;
* residuals of all pairs and of those kept, and max |PᵀP - I| over all pairs: what the certificate consists of;
* return probabilities and degrees; one cache file with all of it, written by the same function.

`prepare` does a little more, which the loop is spared: it checks every edge, names the cache entry by a hash of the
graphs, looks for it, records the gap at the cut, and refuses a spectrum that is not accurate. ``transforms``
applies this package's transforms graph by graph, on every twelfth graph only. NumPy's BLAS gets one thread: more only
wait for each other on matrices of 23 rows; freed memory stays with the process (`python -m benchmarks` sets both). Runs
alternate, and nothing is timed before the results have been compared.
"""

import argparse
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import InMemoryDataset

from benchmarks.graphs import molecule_like
from benchmarks.harness import append, gate
from gssc import LaplacianSpectrum, RandomWalkSE, prepare
from gssc.spectra.cache import Cache
from gssc.spectra.truncation import CLUSTER_TOLERANCE

K, STEPS = 16, 20


def batched(dataset: InMemoryDataset, folder: Path) -> InMemoryDataset:
    """The whole dataset at once."""
    return prepare(dataset, LaplacianSpectrum(K, "combinatorial"), RandomWalkSE(STEPS), cache=folder, progress=False)


def truncated(values: np.ndarray, vectors: np.ndarray, tolerance: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first K of the ascending pairs of one graph in whole eigenspaces, as `gssc.spectra.truncation` has them."""
    values = np.where(np.abs(values) <= tolerance, 0.0, values)
    cluster = np.concatenate([[0], np.cumsum(np.diff(values) > tolerance)])
    means = np.bincount(cluster, weights=values) / np.bincount(cluster)
    means[cluster[values == 0.0]] = 0.0
    count = min(K, values.size)
    if values.size > K:
        count = int((cluster[:K] != cluster[K]).sum())
    kept_values, kept_vectors = np.zeros(K), np.zeros((vectors.shape[0], K))
    kept_values[:count], kept_vectors[:, :count] = means[cluster[:count]], vectors[:, :count]
    return kept_values, kept_vectors, np.arange(K) < count


def numpy_loop(dataset: InMemoryDataset, folder: Path) -> InMemoryDataset:
    """Graph by graph."""
    graphs, certificates = [], []
    for data in dataset:
        assert data.num_nodes is not None
        result, certificate = numpy_graph(data.edge_index.numpy(), data.num_nodes)
        for name, array in result.items():
            data[name] = torch.from_numpy(array)
        graphs.append(data)
        certificates.append(certificate)
    out = InMemoryDataset()
    out._data, out.slices = out.collate(graphs)
    named = {name: out._data[name] for name in ("eigvals", "eigvecs", "eigmask", "rwse", "degree")}
    Cache(folder).store("loop", {**named, "certificate": torch.tensor(certificates)}, {})
    return out


def transforms(dataset: InMemoryDataset, folder: Path) -> InMemoryDataset:
    """The package's own transforms, graph by graph."""
    spectrum, rwse = LaplacianSpectrum(K, "combinatorial"), RandomWalkSE(STEPS)
    out = InMemoryDataset()
    out._data, out.slices = out.collate([rwse(spectrum(data)) for data in dataset])
    return out


def numpy_graph(ends: np.ndarray, n: int) -> tuple[dict[str, np.ndarray], tuple[float, ...]]:
    """What `prepare` computes, for one graph: attributes, and residual, orthogonality and tolerance."""
    a = np.zeros((n, n))
    np.add.at(a, (ends[0], ends[1]), 1.0)
    if not np.array_equal(a, a.T):
        a = (a + a.T) / np.maximum((a != 0).astype(float) + (a.T != 0), 1.0)
    degree = a.sum(axis=1)
    laplacian = np.diag(degree) - a
    values, vectors = np.linalg.eigh(laplacian)
    accuracy = np.linalg.norm(laplacian @ vectors - vectors * values, axis=0).max()
    tolerance = CLUSTER_TOLERANCE * max(accuracy, np.finfo(float).eps * np.abs(values).max())
    count, label = connected_components(sp.csr_array(a), directed=False)
    if (np.abs(values) <= tolerance).sum() == count:
        exact = np.zeros((n, count))
        exact[np.arange(n), label] = 1.0
        values[:count], vectors[:, :count] = 0.0, exact / np.sqrt(exact.sum(axis=0))
    orthogonality = np.abs(vectors.T @ vectors - np.eye(n)).max()
    kept_values, kept_vectors, kept_mask = truncated(values, vectors, tolerance)
    residual = np.linalg.norm(laplacian @ kept_vectors - kept_vectors * kept_values, axis=0).max()
    scale = 1.0 / np.sqrt(np.where(degree > 0, degree, np.inf))
    walk = a * scale * scale[:, None]
    rwse, power = np.empty((n, STEPS)), walk
    for t in range(STEPS):
        rwse[:, t] = power.diagonal()
        power = power @ walk
    result = {
        "eigvals": kept_values[None].astype(np.float32),
        "eigvecs": kept_vectors.astype(np.float32),
        "eigmask": kept_mask[None],
        "rwse": rwse.astype(np.float32),
        "degree": degree.astype(np.float32),
    }
    return result, (float(residual), float(orthogonality), float(tolerance))


def compare(one: InMemoryDataset, other: InMemoryDataset) -> None:
    """Fail unless both results agree to float32 rounding; eigenvectors by the kernel that they span, cos(L)."""
    a, b = one._data, other._data
    assert a is not None
    assert b is not None
    assert torch.equal(a.eigmask, b.eigmask)
    if "degree" in b:  # the transforms attach none
        assert torch.equal(a.degree, b.degree)
    for name in ("eigvals", "rwse"):
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-5)
    for x, y in zip(one[::20], other[::20], strict=True):
        kernels = [(d.eigvecs * d.eigvals.cos() * d.eigmask) @ d.eigvecs.T for d in (x, y)]
        torch.testing.assert_close(kernels[0], kernels[1], atol=1e-4, rtol=0)


def measure(function: Callable[[InMemoryDataset, Path], Any], dataset: InMemoryDataset) -> tuple[float, float]:
    """Seconds, and seconds of all cores, for one run with an empty cache."""
    folder = Path(tempfile.mkdtemp())
    gc.collect()  # what the method before has left is not to be cleared away in the time of this one
    try:
        start, busy = time.perf_counter(), time.process_time()
        function(dataset, folder)
        return time.perf_counter() - start, time.process_time() - busy
    finally:
        shutil.rmtree(folder)


def main(arguments: list[str] | None = None) -> None:
    """Measure and append one row per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV file to append to")
    parser.add_argument("--graphs", type=int, default=12_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    dataset, part = molecule_like(options.graphs), molecule_like(max(1, options.graphs // 12), seed=1)
    with tempfile.TemporaryDirectory() as folder, gate("benchmarks.spectra_small"):
        for loop in (numpy_loop, transforms):
            compare(batched(part, Path(folder)), loop(part, Path(folder)))
    methods = {"batched": (batched, dataset), "numpy_loop": (numpy_loop, dataset), "transforms": (transforms, part)}
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    busy: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(options.runs):
        for name, (method, graphs) in methods.items():
            wall, cpu = measure(method, graphs)
            seconds[name].append(wall)
            busy[name].append(cpu)
    each = {name: float(np.median(seconds[name])) / len(graphs) for name, (_, graphs) in methods.items()}
    rows: list[dict[str, object]] = []
    for name, (_, graphs) in methods.items():
        low, middle, high = (1e3 * float(t) for t in np.percentile(seconds[name], [20, 50, 80]))
        rows.append(
            {
                "benchmark": "spectra_small",
                "workload": f"{len(graphs)} molecule-like graphs, k={K} combinatorial, rwse={STEPS}, degrees, cache",
                "variant": name,
                "p20_ms": f"{low:.0f}",
                "p50_ms": f"{middle:.0f}",
                "p80_ms": f"{high:.0f}",
                "baseline": "" if name == "batched" else "batched, per graph",
                "ratio": "" if name == "batched" else f"{each[name] / each['batched']:.2f}",
                "note": f"{1e6 * each[name]:.1f} us per graph, {np.median(busy[name]):.2f} CPU seconds, "
                f"BLAS threads {os.environ.get('OPENBLAS_NUM_THREADS', 'default')}",
            }
        )
        print(
            f"{name:>12}: {middle / 1e3:.3f} s for {len(graphs)} graphs, {each[name] / each['batched']:.2f} x batched"
        )
    append(options.out, rows)


if __name__ == "__main__":
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        # Read when NumPy is imported, so that only a new process can set it.
        command = [sys.executable, "-m", "benchmarks.spectra_small", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    main()
