"""The fused kernels on a GPU: judged, then timed beside their baselines in one process.

    python -m gssc.bench.kernels --out benchmarks/results.csv
    python -m gssc.bench.kernels --models --out benchmarks/results.csv
    python -m gssc.bench.kernels --models --nodes 10000 60000 --profile 60000 --tune
    python -m gssc.bench.kernels --tune

Every row says how the time was taken (launched, or replayed as a CUDA graph), the error against float64, and the ratio
to the time in which the bytes that must move could have been copied, at the copy bandwidth measured in the same run.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from gssc.bench import kernels_conv, kernels_models
from gssc.bench.harness import append
from gssc.bench.kernels_conv import Result
from gssc.bench.kernels_timing import copy_bandwidth
from gssc.environment import hardware
from gssc.ops.gssc_conv.fused import Tuning

CANDIDATES = [
    Tuning(rows=rows, warps=warps, stages=stages, tiles=tiles)
    for rows, warps, stages, tiles in (
        (64, 4, 3, 4), (64, 4, 3, 2), (64, 4, 4, 4), (32, 4, 3, 8), (32, 4, 3, 4), (32, 4, 4, 8), (32, 4, 4, 4),
        (32, 4, 2, 8), (32, 2, 3, 8), (16, 2, 4, 8))
]  # fmt: skip


def row(result: Result, baseline: Result | None, bandwidth: float) -> dict[str, object]:
    """A row of the results file."""
    out: dict[str, object] = {"benchmark": "kernels", "workload": result.workload, "variant": result.variant}
    notes = [result.problem] if result.problem else []
    if result.timing is not None:
        timing = result.timing
        out |= {"p20_ms": f"{timing.p20:.4f}", "p50_ms": f"{timing.p50:.4f}", "p80_ms": f"{timing.p80:.4f}"}
        out["peak_mb"] = f"{timing.peak_mb:.0f}"
        notes.append(timing.how)
        if result.floor_ms is not None:
            notes.append(f"{timing.p50 / result.floor_ms:.2f} times the floor of {result.floor_ms:.4f} ms")
        if baseline is not None and baseline.timing is not None and baseline is not result:
            out |= {"baseline": baseline.variant, "ratio": f"{timing.p50 / baseline.timing.p50:.2f}"}
    if result.error is not None:
        notes.append(f"error {result.error:.1e}")
    import triton

    notes.append(f"copy {bandwidth / 1e12:.2f} TB/s, triton {triton.__version__}")
    out["note"] = "; ".join(notes)
    return out


def show(console: Console, results: list[Result]) -> None:
    """A table of what was measured."""
    table = Table(title="forward + backward, if it does not say otherwise")
    for heading in ("workload", "variant", "p50 ms", "peak MB", "times floor", "error", "how"):
        table.add_column(heading, justify="right", no_wrap=True)
    for r in results:
        t = r.timing
        table.add_row(
            r.workload,
            r.variant,
            r.problem if t is None else f"{t.p50:.4f}",
            "" if t is None else f"{t.peak_mb:,.0f}",
            f"{t.p50 / r.floor_ms:.2f}" if t is not None and r.floor_ms else "",
            "" if r.error is None else f"{r.error:.0e}",
            "" if t is None else t.how,
        )
    console.print(table)


def convolutions(bandwidth: float) -> Iterator[list[Result]]:
    """The convolution alone, workload by workload."""
    for work in (*kernels_conv.SMALL, *kernels_conv.LARGE):
        yield list(kernels_conv.run(work, bandwidth))


def whole_models(console: Console, nodes: list[int] | None) -> Iterator[list[Result]]:
    """Whole models, graph by graph, if they compute what they should; of given sizes only where some are given."""
    graphs = (*kernels_models.DENSE, *kernels_models.SPARSE)
    wrong = kernels_models.error(graphs[0])
    console.print(f"whole model: error {wrong:.1e}, limit {kernels_models.LIMIT:.0e}")
    if not wrong <= kernels_models.LIMIT:
        raise SystemExit("gssc.bench.kernels: the model is wrong")
    for graph in graphs:
        if nodes is None or graph.nodes in nodes:
            yield list(kernels_models.run(graph, with_rivals=nodes is None))


def look_closer(console: Console, nodes: int, tune: bool) -> None:
    """Where a training step of the graph with so many nodes spends its time, and how else it could be cut."""
    (graph,) = (g for g in (*kernels_models.DENSE, *kernels_models.SPARSE) if g.nodes == nodes)
    lines = [kernels_models.profiled(graph), *([kernels_models.tune(graph)] if tune else [])]
    for part in lines:
        for line in part:
            console.print(line, markup=False, highlight=False)


def main() -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--models", action="store_true", help="whole models instead of the convolution alone")
    parser.add_argument("--nodes", type=int, nargs="+", help="with --models: graphs of these sizes only, no rivals")
    parser.add_argument("--profile", type=int, metavar="NODES", help="with --models: kernels of a step on this graph")
    parser.add_argument("--tune", action="store_true", help="time ways to cut the work (with --profile: after it)")
    arguments = parser.parse_args()
    console = Console(width=140)
    if not torch.cuda.is_available():
        raise SystemExit("gssc.bench.kernels: there is no GPU")
    bandwidth = copy_bandwidth()
    console.print(f"{hardware('cuda')}: copies at {bandwidth / 1e12:.2f} TB/s")
    if arguments.tune and not arguments.models:
        for line in kernels_conv.tune(kernels_conv.LARGE[-1], CANDIDATES, bandwidth):
            console.print(line)
        return
    everything: list[Result] = []
    for results in whole_models(console, arguments.nodes) if arguments.models else convolutions(bandwidth):
        everything += results
        show(console, results)
        append(arguments.out, [row(result, results[0], bandwidth) for result in results], "cuda")
    if arguments.models and arguments.profile:
        look_closer(console, arguments.profile, arguments.tune)
    if any("wrong" in result.problem for result in everything):
        raise SystemExit("gssc.bench.kernels: some results were wrong")


if __name__ == "__main__":
    main()
