"""All spectra of 12,000 molecule-like graphs: `prepare` against a loop over the graphs in NumPy.

    python -m gssc.bench.spectra_small --out FILE.csv

Both start from the same PyG dataset and end with a collated dataset that carries eigenvalues, eigenvectors, mask,
random-walk encodings and degrees, their certificate computed and one cache file written. The loop is plain dense NumPy
(SciPy for the connected components), one graph after the other; runs of the two alternate. Nothing is timed before
their results have been compared.
"""

import argparse
import csv
import datetime
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import torch
import torch_geometric
from scipy.sparse.csgraph import connected_components
from torch_geometric.data import InMemoryDataset

from gssc.bench.molecules import molecule_like
from gssc.spectra.cache import Cache
from gssc.spectra.prepare import prepare
from gssc.spectra.solve import CLUSTER_TOLERANCE
from gssc.spectra.transforms import LaplacianSpectrum, RandomWalkSE
from gssc.spectra.truncation import truncate

K, STEPS = 16, 20


def batched(dataset: InMemoryDataset, folder: Path) -> InMemoryDataset:
    """The whole dataset at once."""
    return prepare(dataset, LaplacianSpectrum(K, "combinatorial"), RandomWalkSE(STEPS), cache=folder, progress=False)


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
    kept = truncate(values, vectors, K, tolerance=tolerance)
    residual = np.linalg.norm(laplacian @ kept.vectors - kept.vectors * kept.values, axis=0).max()
    scale = 1.0 / np.sqrt(np.where(degree > 0, degree, np.inf))
    walk = a * scale * scale[:, None]
    rwse, power = np.empty((n, STEPS)), walk
    for t in range(STEPS):
        rwse[:, t] = power.diagonal()
        power = power @ walk
    result = {
        "eigvals": kept.values[None].astype(np.float32),
        "eigvecs": kept.vectors.astype(np.float32),
        "eigmask": kept.mask[None],
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
    for name in ("eigvals", "rwse", "degree"):
        torch.testing.assert_close(a[name], b[name], atol=1e-5, rtol=1e-5)
    for i in range(0, len(one), 97):
        x, y = one[i], other[i]
        kernels = [(d.eigvecs * d.eigvals.cos() * d.eigmask) @ d.eigvecs.T for d in (x, y)]
        torch.testing.assert_close(kernels[0], kernels[1], atol=1e-4, rtol=0)


def measure(function: Callable[[InMemoryDataset, Path], Any], dataset: InMemoryDataset) -> float:
    """Seconds for one run with an empty cache."""
    folder = Path(tempfile.mkdtemp())
    try:
        start = time.perf_counter()
        function(dataset, folder)
        return time.perf_counter() - start
    finally:
        shutil.rmtree(folder)


def environment() -> dict[str, str]:
    """Where a number comes from."""
    here = Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False).stdout
    return {
        "threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "commit": commit.strip() or "unknown",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and append one row per method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="CSV file to append to")
    parser.add_argument("--graphs", type=int, default=12_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args(arguments)
    dataset = molecule_like(options.graphs)
    few = molecule_like(min(options.graphs, 1000), seed=1)
    with tempfile.TemporaryDirectory() as folder:
        compare(batched(few, Path(folder)), numpy_loop(few, Path(folder)))
    methods: dict[str, Callable[[InMemoryDataset, Path], Any]] = {"batched": batched, "numpy_loop": numpy_loop}
    seconds = {name: [] for name in methods}  # type: dict[str, list[float]]
    for _ in range(options.runs):
        for name, method in methods.items():
            seconds[name].append(measure(method, dataset))
    half = {name: float(np.median(values)) for name, values in seconds.items()}
    rows = [
        {
            "benchmark": "spectra_small",
            "method": name,
            "graphs": options.graphs,
            "runs": options.runs,
            "p50_s": f"{half[name]:.3f}",
            "min_s": f"{min(values):.3f}",
            "max_s": f"{max(values):.3f}",
            "ratio_to_loop": f"{half['numpy_loop'] / half[name]:.2f}",
            **environment(),
        }
        for name, values in seconds.items()
    ]
    new = not options.out.exists()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        if new:
            writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(f"{row['method']:>12}: {row['p50_s']} s, {row['ratio_to_loop']} times the loop's speed")


if __name__ == "__main__":
    main()
