"""The convolution on a CPU, forward and backward, against other ways to hear from every node; and its growth.

    python -m benchmarks.conv --out benchmarks/results.csv

The others are the same layer written with explicit z tensors, PyTorch's softmax attention in four heads, and PyG's
Performer attention, each with as many channels. Selection (Eq. 6), whose definition is quadratic in n, is judged by
that first; the growth of its time is a row of its own. Set MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 (as
``python -m benchmarks`` does): otherwise glibc hands large buffers back to the system after every call, and page faults
are what is measured.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from benchmarks import peers
from benchmarks.harness import append, gate, peak_memory, timed
from gssc import GSSConv
from gssc.ops.selective import naive
from gssc.testing import assert_close

CHANNELS, FREQUENCIES = 64, 32
COMPARED, GROWTH = 5_000, (50_000, 200_000)
SELECTIVE_GROWTH = 5_000, 20_000  # pairs of frequencies take K times as long

Step = Callable[[], object]


def explicit_z(conv: GSSConv, x: Tensor, phi: Tensor, vectors: Tensor) -> Tensor:
    """The layer by explicit z tensors."""
    weights = (conv.lin_q, conv.lin_k, conv.lin_sq, conv.lin_sk)
    return peers.explicit_z(conv.lin_o(x), conv.lin_s(x), vectors, phi, weights)


def selection_by_pairs(conv: GSSConv, x: Tensor, phi: Tensor, vectors: Tensor) -> Tensor:
    """The selective layer from its definition, a sum over pairs of nodes."""
    weights = {"dv": conv.lin_dv, "q": conv.lin_q, "k": conv.lin_k, "sq": conv.lin_sq, "sk": conv.lin_sk}
    pairs, ptr = conv.lin_dq(phi) * conv.lin_dk(phi), torch.tensor([0, len(x)])
    return naive.selective_gssc_conv(
        x, conv.lin_o(x), conv.lin_s(x), vectors, phi, pairs, weights, ptr, shared=False, normalize=True
    )


def inputs(nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features [n, C] with gradient, Φ [1, K, C] with gradient, vectors [n, K] of unit length as columns."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(nodes, CHANNELS, generator=generator).requires_grad_()
    phi = torch.randn(1, FREQUENCIES, CHANNELS, generator=generator).requires_grad_()
    return x, phi, torch.randn(nodes, FREQUENCIES, generator=generator) / nodes**0.5


def step(conv: GSSConv, forward: Callable[..., Tensor], data: tuple[Tensor, Tensor, Tensor]) -> Step:
    """One forward and backward pass, with gradients of all weights, of x and of Φ."""
    leaves = [*conv.parameters(), data[0], data[1]]
    return lambda: torch.autograd.grad(forward(*data).sum(), leaves)


def attention_step(x: Tensor) -> Step:
    """Softmax attention among all nodes by whichever kernel PyTorch takes, with its projections."""
    project, merge = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)
    leaves = [*project.parameters(), *merge.parameters(), x]

    def forward() -> Tensor:
        mixed = peers.softmax_attention(*project(x).chunk(3, dim=1))
        return merge(mixed[0].transpose(0, 1).flatten(1))

    return lambda: torch.autograd.grad(forward().sum(), leaves)


def performer_step(x: Tensor) -> Step:
    """Performer attention, with its projections."""
    performer = peers.performer(CHANNELS)
    leaves = [*performer.parameters(), x]
    return lambda: torch.autograd.grad(performer(x.unsqueeze(0)).sum(), leaves, allow_unused=True)


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--seconds", type=float, default=5.0, help="time per measurement")
    parser.add_argument("--nodes", type=int, default=COMPARED, help="of the graph on which all are compared")
    parser.add_argument("--growth", type=int, nargs=2, default=GROWTH, help="two sizes, for the growth of time")
    parser.add_argument("--selective", type=int, nargs=2, default=SELECTIVE_GROWTH, help="likewise, with selection")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    conv, selective = GSSConv(CHANNELS), GSSConv(CHANNELS, selective=True)

    # Nothing is timed that does not agree.
    with gate("benchmarks.conv"):
        data = inputs(500)
        assert_close(conv(*data), explicit_z(conv, *data), "convolution against explicit z", 1e-5)
        data = inputs(100)
        assert_close(selective(*data), selection_by_pairs(selective, *data), "selection against its definition", 1e-4)

    data = inputs(options.nodes)
    steps = {
        "gssc": step(conv, conv, data),
        "explicit z": step(conv, lambda *d: explicit_z(conv, *d), data),
        "PyTorch attention, float32": attention_step(data[0]),
        "PyG Performer": performer_step(data[0]),
    }
    compared = [(options.nodes, name, *_measure(one, options.seconds)) for name, one in steps.items()]
    sizes = {"gssc": options.growth, "gssc, selective": options.selective}
    grown = [
        (n, name, *_measure(step(one, one, inputs(n)), options.seconds))
        for (name, both), one in zip(sizes.items(), (conv, selective), strict=True)
        for n in both
    ]
    first = {name: times[1] for nodes, name, times, _ in grown if nodes == sizes[name][0]}

    console = Console(width=120)
    rows: list[dict[str, object]] = []
    table = Table(
        title=f"GSSConv forward + backward, C = {CHANNELS}, K = {FREQUENCIES}, {torch.get_num_threads()} threads"
    )
    for heading in ("n", "variant", "p20 ms", "p50 ms", "p80 ms", "peak MB", "baseline", "times baseline"):
        table.add_column(heading, justify="right")
    for nodes, variant, times, peak in compared + grown:
        percentiles = dict(zip(("p20_ms", "p50_ms", "p80_ms"), (f"{t:.3f}" for t in times), strict=True))
        baseline, ratio = "", ""
        if variant in sizes and nodes == sizes[variant][1]:
            baseline, ratio = f"{variant} n={sizes[variant][0]}", f"{times[1] / first[variant]:.2f}"
        elif variant not in sizes:
            baseline, ratio = "gssc", f"{times[1] / compared[0][2][1]:.2f}"
        workload = f"n={nodes} C={CHANNELS} K={FREQUENCIES} forward+backward"
        row: dict[str, object] = {"benchmark": "conv", "workload": workload, "variant": variant, **percentiles}
        rows.append(row | {"peak_mb": f"{peak:.0f}", "baseline": baseline, "ratio": ratio})
        table.add_row(f"{nodes:,}", variant, *percentiles.values(), f"{peak:.0f}", baseline, ratio)
    console.print(table)
    console.print(f"at n = {options.nodes:,}: {rows[1]['ratio']} times faster than explicit z tensors (target: 10)")
    for name, (small, large) in sizes.items():
        found = next(row["ratio"] for row in rows if row["baseline"] == f"{name} n={small}")
        linear = f"(linear: {large / small:.0f}; target: at most {1.2 * large / small:.1f})"
        console.print(f"growth of {name} from n = {small:,} to {large:,}: {found} {linear}")
    append(options.out, rows)


def _measure(one: Step, seconds: float) -> tuple[tuple[float, float, float], float]:
    """Percentiles of the time, and by how many MB a call raises memory."""
    times = timed(one, seconds)
    with peak_memory() as peak:
        one()
    return times, peak["mb"]


if __name__ == "__main__":
    main()
