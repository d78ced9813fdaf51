"""The convolution, forward and backward, against the same layer written with explicit z tensors; and its growth.

    python -m gssc.bench.conv --out benchmarks/results.csv

Set MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 (as ``make bench`` does): otherwise glibc hands large buffers
back to the system after every call, and page faults are what is measured.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gssc import GSSConv
from gssc.bench.harness import append, timed
from gssc.testing import assert_close

CHANNELS, FREQUENCIES = 64, 32
COMPARED, GROWTH = 5_000, (50_000, 200_000)


def explicit_z(conv: GSSConv, x: Tensor, phi: Tensor, vectors: Tensor) -> Tensor:
    """Eq. 5 as it is printed, for one graph: z [n, K, c] per node, multiplied by every weight, summed over nodes."""
    z = torch.einsum("nk,kc->nkc", vectors, phi[0])
    state = torch.einsum("nkc,nc->kc", conv.lin_k(z), conv.lin_o(x))
    mixed = torch.einsum("nkc,kc->nc", conv.lin_q(z), state)
    own = torch.einsum("nkc,nkc->nc", conv.lin_sq(z), conv.lin_sk(z)) * conv.lin_s(x)
    return mixed + own


def inputs(nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features [n, C] with gradient, Φ [1, K, C] with gradient, vectors [n, K] of unit length as columns."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, CHANNELS, generator=generator).requires_grad_()
    phi = torch.randn(1, FREQUENCIES, CHANNELS, generator=generator).requires_grad_()
    return x, phi, torch.randn(nodes, FREQUENCIES, generator=generator) / nodes**0.5


def step(conv: GSSConv, forward: Callable[..., Tensor], data: tuple[Tensor, Tensor, Tensor]) -> Callable[[], object]:
    """One forward and backward pass, with gradients of all weights, of x and of Φ."""
    leaves = [*conv.parameters(), data[0], data[1]]
    return lambda: torch.autograd.grad(forward(*data).sum(), leaves)


def main() -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--seconds", type=float, default=5.0, help="time per measurement")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    conv = GSSConv(CHANNELS)

    # Nothing is timed that does not agree.
    data = inputs(500)
    assert_close(conv(*data), explicit_z(conv, *data), "convolution against explicit z", 1e-5)

    data = inputs(COMPARED)
    ours = timed(step(conv, conv, data), arguments.seconds)
    theirs = timed(step(conv, lambda *d: explicit_z(conv, *d), data), arguments.seconds)
    small, large = (timed(step(conv, conv, inputs(n)), arguments.seconds) for n in GROWTH)

    growth = GROWTH[1] / GROWTH[0]
    measured = [
        (COMPARED, "gssc", ours, "", ""),
        (COMPARED, "explicit z", theirs, "gssc", round(theirs[1] / ours[1], 2)),
        (GROWTH[0], "gssc", small, "", ""),
        (GROWTH[1], "gssc", large, f"gssc n={GROWTH[0]}", round(large[1] / small[1], 2)),
    ]
    rows: list[dict[str, object]] = []
    table = Table(
        title=f"GSSConv forward + backward, C = {CHANNELS}, K = {FREQUENCIES}, {torch.get_num_threads()} threads"
    )
    for heading in ("n", "variant", "p20 ms", "p50 ms", "p80 ms", "baseline", "times baseline"):
        table.add_column(heading, justify="right")
    for nodes, variant, times, baseline, ratio in measured:
        percentiles = dict(zip(("p20_ms", "p50_ms", "p80_ms"), (f"{t:.3f}" for t in times), strict=True))
        workload = f"n={nodes} C={CHANNELS} K={FREQUENCIES} forward+backward"
        rows.append(
            {
                "benchmark": "conv",
                "workload": workload,
                "variant": variant,
                **percentiles,
                "baseline": baseline,
                "ratio": ratio,
            }
        )
        table.add_row(f"{nodes:,}", variant, *percentiles.values(), baseline, str(ratio))
    console = Console()
    console.print(table)
    console.print(f"at n = {COMPARED:,}: {theirs[1] / ours[1]:.1f} times faster than explicit z tensors (target: 10)")
    console.print(
        f"growth from n = {GROWTH[0]:,} to {GROWTH[1]:,}: {large[1] / small[1]:.2f} "
        f"(linear: {growth:.0f}; target: at most {1.2 * growth:.1f})"
    )
    append(arguments.out, rows)


if __name__ == "__main__":
    main()
