"""One step of the recurrence, Z ← 2 H X - Z with a normalised Laplacian: the fused kernels against torch.sparse.

    python -m benchmarks.spectra_product --nodes 1000000 --graphs random grid

Prints milliseconds, and per second the bytes that must be moved: the matrix once, a gathered row of X per entry, rows
of X and Z. Gathered rows that are found in a cache make that more than the memory has. ``--tiles`` tries other sizes
of a program's tile.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.graphs import GRAPHS
from benchmarks.harness import append, timed
from gssc.spectra import fused_product
from gssc.spectra.fused_product import fused_step
from gssc.spectra.sparse_operator import DeviceGraph, SparseOperator

STEPS = 20


def measure(
    operator: SparseOperator, width: int, dtype: torch.dtype, tiles: list[int], seconds: float
) -> list[tuple[str, tuple[float, float, float]]]:
    """(variant, ms at p20, p50, p80) of torch.sparse and of every tile, all checked against the first."""
    generator = torch.Generator(device=operator.device).manual_seed(0)
    x, z = torch.randn(2, operator.n, width, dtype=dtype, device=operator.device, generator=generator)
    csr, weight = operator.csr(dtype=dtype), operator.weight.to(dtype)
    coefficients = torch.tensor([2.0, 0.0, -1.0], dtype=dtype, device=operator.device)
    plan = operator.plan

    def sparse(into: torch.Tensor) -> torch.Tensor:
        return into.addmm_(csr, x, beta=-1.0, alpha=2.0)

    def fused(into: torch.Tensor) -> torch.Tensor:
        fused_step(plan, operator.crow, operator.col, weight, coefficients, x, into, adds=True)
        return into

    def several(step: object) -> tuple[float, float, float]:
        # Z ← 2 H X - Z twice is the identity: nothing grows.
        p20, p50, p80 = timed(lambda: [step(z) for _ in range(STEPS)], seconds, 3)  # type: ignore[operator]
        return p20 / STEPS, p50 / STEPS, p80 / STEPS

    begin = z.clone()  # the steps that are timed change z, if only by rounding
    expected = sparse(begin.clone())
    rows = [("torch.sparse", several(sparse))]
    default = fused_product.TILE_BYTES
    try:
        for tile in tiles or [default]:
            fused_product.TILE_BYTES = tile
            error = float((fused(begin.clone()) - expected).abs().max())
            limit = 1e-12 if dtype == torch.float64 else 1e-4
            if not error <= limit:
                raise SystemExit(f"fused product, tile {tile}: off by {error:.1e}")
            rows.append((f"fused tile={tile}", several(fused)))
    finally:
        fused_product.TILE_BYTES = default
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=["random", "grid", "powerlaw"])
    parser.add_argument("--widths", type=int, nargs="+", default=[8])
    parser.add_argument("--tiles", type=int, nargs="+", default=[], help="bytes; default: the one in use")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.3, help="time per measurement")
    parser.add_argument("--out", type=Path, help="results file to append to")
    options = parser.parse_args(arguments)
    for graph in options.graphs:
        operator, _ = DeviceGraph(GRAPHS[graph](options.nodes), options.device).laplacian("sym")
        for width in options.widths:
            for dtype in (torch.float64, torch.float32):
                size = torch.finfo(dtype).bits // 8
                entries = operator.col.numel()
                moved = entries * (4 + size + width * size) + 3 * operator.n * width * size
                measured = measure(operator, width, dtype, options.tiles, options.seconds)
                name = f"{graph} n={operator.n} entries={entries} columns={width} {str(dtype).partition('.')[2]}"
                for variant, times in measured:
                    ratio = measured[0][1][1] / times[1]
                    print(
                        f"{name:<64} {variant:<18} {times[1]:8.3f} ms {moved / times[1] / 1e6:8.0f} GB/s "
                        f"{ratio:6.2f} times as fast",
                        flush=True,
                    )
                    row = {"benchmark": "spectra_product", "workload": name, "variant": variant}
                    row |= {key: f"{t:.4g}" for key, t in zip(("p20_ms", "p50_ms", "p80_ms"), times, strict=True)}
                    if variant != "torch.sparse":
                        row |= {"baseline": "torch.sparse", "ratio": f"{times[1] / measured[0][1][1]:.4g}"}
                    if options.out is not None:
                        append(options.out, [dict(row)], options.device)


if __name__ == "__main__":
    main()
