"""One GatedGCN layer, forward and backward, kernel by kernel, on random graphs of four kinds.

    python -m benchmarks.message_passing [--precision tf32] [--out benchmarks/results.csv]     # needs a GPU

Beside each stands the least time by the bytes that it must move: with T one tensor of edges, 3 T forward (read twice,
written once) and 5 T backward (read three times, twice written), at the speed of a copy measured in the same run.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import append, copy_bandwidth, kernels_of, measure
from gssc.nn import GatedGCN
from gssc.train.evaluate import default_dtype

# Nodes, edges per node, channels, and nodes of a graph.
SIZES = {
    "32 molecules": (736, 2, 64, 23),
    "32 graphs of PATTERN's size": (3_808, 51, 36, 119),
    "20,000 nodes of degree 60": (20_000, 60, 96, 20_000),
    "200,000 nodes of degree 10": (200_000, 10, 96, 200_000),
}


def random_edges(nodes: int, degree: int, size: int, device: str) -> Tensor:
    """Edges within consecutive graphs of a size, in the order of their sources."""
    target = torch.randint(nodes, (nodes * degree,), device=device)
    first = target // size * size
    source = (first + torch.randint(size, target.shape, device=device)).clamp(max=nodes - 1)
    order = source.argsort(stable=True)
    return torch.stack([source[order], target[order]])


def main(arguments: list[str] | None = None) -> None:
    """Time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", default="tf32", choices=("float32", "tf32"))
    parser.add_argument("--top", type=int, default=12, help="how many kernels to print")
    parser.add_argument("--out", type=Path, default=None, help="results file to append to")
    options = parser.parse_args(arguments)
    bandwidth, rows = copy_bandwidth(), list[dict[str, object]]()
    for what, (nodes, degree, channels, size) in SIZES.items():
        torch.manual_seed(0)
        edge_index, conv = random_edges(nodes, degree, size, "cuda"), GatedGCN(channels, dropout=0.1).cuda()
        x = torch.randn(nodes, channels, device="cuda", requires_grad=True)
        e = torch.randn(edge_index.shape[1], channels, device="cuda", requires_grad=True)

        def step(x: Tensor = x, e: Tensor = e, conv: GatedGCN = conv, edge_index: Tensor = edge_index) -> None:
            results = conv(x, edge_index, e)
            torch.autograd.grad(results, [x, e, *conv.parameters()], [part.detach() for part in results])

        with default_dtype(options.precision):
            timing = measure(step, replay=True)
            listed = list(kernels_of(step, options.top, 60))
        least = 1e3 * 8 * 4 * e.numel() / bandwidth
        print(
            f"{what}, {options.precision}: {timing.p50:.3f} ms ({timing.how}), floor {least:.3f} ms",
            *listed,
            sep="\n",
            flush=True,
        )
        rows.append(
            {
                "benchmark": "message_passing",
                "workload": what,
                "variant": options.precision,
                "p50_ms": f"{timing.p50:.3f}",
            }
            | {"note": f"{timing.how}; {listed[0]}; floor {least:.3f} ms"}
        )
    if options.out is not None:
        append(options.out, rows, "cuda")


if __name__ == "__main__":
    main()
