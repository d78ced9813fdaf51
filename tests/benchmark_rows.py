"""A small results file with rows of every kind."""

from pathlib import Path

from benchmarks.harness import append

ROWS = [
    {"benchmark": "conv", "workload": "n=500 C=64 K=32 forward+backward", "variant": "gssc", "p50_ms": 9.0},
    {"benchmark": "conv", "workload": "n=500 C=64 K=32 forward+backward", "variant": "gssc", "p50_ms": 1.0},
    {"benchmark": "conv", "workload": "n=900 C=64 K=32 forward+backward", "variant": "gssc", "p50_ms": 2.0},
    {"benchmark": "conv", "workload": "n=500 C=64 K=32 forward+backward", "variant": "explicit z", "p50_ms": 50.0},
    {"benchmark": "kernels", "workload": "one graph of 60,000", "variant": "fused", "p50_ms": 0.1, "peak_mb": 80},
    {"benchmark": "kernels", "workload": "zinc batch of 32", "variant": "fused", "p50_ms": 0.1},
    {"benchmark": "kernels", "workload": "1,000 nodes, 10k edges", "variant": "gssc, training", "p50_ms": 4.0}
    | {"peak_mb": 30},
    {"benchmark": "kernels", "workload": "1,000 nodes, 10k edges", "variant": "gssc, inference", "p50_ms": 1.5},
    {"benchmark": "kernels", "workload": "100,000 nodes, degree 10", "variant": "gssc, training", "p50_ms": 40.0},
    {"benchmark": "kernels", "workload": "growth, degree 10, 100,000 to 10,000,000 nodes", "variant": "gssc, training"}
    | {"ratio": "0.981", "note": "slope of log time against log(n + E) 0.981"},
    {"benchmark": "spectra_large", "workload": "grid n=10000 edges=19800 k=32 sym", "variant": "gssc", "p50_ms": 25.0}
    | {"note": "ok; residual 1e-7"},
    {"benchmark": "spectra_large", "workload": "grid n=10000 edges=19800 k=32 sym", "variant": "torch.lobpcg"}
    | {"p50_ms": 999.0, "note": "no convergence; residual 1e-3"},
    {
        "benchmark": "training",
        "workload": "zinc-12k step, generated molecules",
        "variant": "gssc train",
        "p50_ms": 80.0,
    },
]


def write_results(path: Path) -> Path:
    append(path, ROWS)
    return path
