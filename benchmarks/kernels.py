"""The fused kernels on a GPU: judged, then timed beside their baselines in one process.

    python -m benchmarks.kernels --out benchmarks/results.csv
    python -m benchmarks.kernels --models --out benchmarks/results.csv
    python -m benchmarks.kernels --growth --out benchmarks/results.csv
    python -m benchmarks.kernels --models --nodes 1000000 3000000 --degree 10 --precision bf16 --recompute 2
    python -m benchmarks.kernels --models --nodes 10000 60000 --profile 60000
    python -m benchmarks.kernels --tune

Every row says how the time was taken (launched, or replayed as a CUDA graph), the error against float64, and the ratio
to the time in which the bytes that must move could have been copied, at the copy bandwidth measured in the same run.
``--growth`` is ``--models`` for 100,000 to 10,000,000 nodes of degree 10 in bfloat16 with layers recomputed. Where
graphs of several sizes but one degree were measured, the slope of log time against log(n + E) is a row of its own.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import kernels_conv, kernels_models
from benchmarks.harness import append, copy_bandwidth
from benchmarks.kernels_conv import Result
from benchmarks.kernels_models import Graph
from gssc.environment import hardware


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


def chosen_graphs(options: argparse.Namespace) -> list[Graph]:
    """The graphs that the command line asks for."""
    if options.growth:
        nodes, setting = options.nodes or kernels_models.GROWTH, (options.degree or 10, "bf16", options.recompute or 2)
        return [kernels_models.sparse(n, *setting) for n in nodes]
    if options.degree is not None:
        sizes = options.nodes or kernels_models.GROWTH
        return [kernels_models.sparse(n, options.degree, options.precision, options.recompute) for n in sizes]
    offered = [*kernels_models.DENSE, *kernels_models.SPARSE]
    missing = sorted(set(options.nodes or ()) - {graph.nodes for graph in offered})
    if missing:
        raise SystemExit(f"benchmarks.kernels: --nodes {missing[0]} needs --degree, which says how many edges")
    return [graph for graph in offered if options.nodes is None or graph.nodes in options.nodes]


def gates(console: Console, graphs: Sequence[Graph]) -> None:
    """Check the forms of the model that are about to be timed, on a small graph; end here where one is wrong."""
    small = kernels_models.DENSE[0]
    for precision, recompute in dict.fromkeys((graph.precision, graph.recompute) for graph in graphs):
        output, gradients = kernels_models.errors(small, recompute=recompute)
        checks = [("output", output, kernels_models.OUTPUT_LIMIT), ("gradients", gradients, kernels_models.LIMIT)]
        if precision == "bf16":
            half = kernels_models.half_error(small, recompute=recompute)
            checks.append(("output in bf16", half, kernels_models.HALF_LIMIT))
        for name, wrong, limit in checks:
            console.print(f"whole model, recompute={recompute}, {name}: error {wrong:.1e}, limit {limit:.0e}")
            if not wrong <= limit:
                raise SystemExit("benchmarks.kernels: the model is wrong, and is not timed")


def memory_gb() -> float:
    """Memory of the GPU."""
    return float(torch.cuda.get_device_properties(0).total_memory) / 1e9


def whole_models(console: Console, graphs: Sequence[Graph], with_rivals: bool) -> Iterator[list[Result]]:
    """Whole models, graph by graph, if they compute what they should and fit into memory."""
    gates(console, graphs)
    room = memory_gb()
    for graph in graphs:
        needs = kernels_models.estimated_gb(graph)
        if needs > room:
            console.print(f"{graph.name}{graph.setting}: left out, needs about {needs:.0f} GB of {room:.0f}")
            continue
        yield list(kernels_models.run(graph, with_rivals=with_rivals))


def growth_rows(graphs: Sequence[Graph], results: Sequence[Result]) -> list[dict[str, object]]:
    """For every variant that was timed on three and more graphs of one degree: the slope of time against n + E."""
    by_name = {graph.name: graph for graph in graphs}
    points: dict[tuple[int, str], list[tuple[int, int, float]]] = {}
    for result in results:
        graph = by_name.get(result.workload)
        if graph is not None and result.timing is not None and graph.edges % graph.nodes == 0:
            key = (graph.edges // graph.nodes, result.variant)
            points.setdefault(key, []).append((graph.nodes, graph.edges, result.timing.p50))
    rows: list[dict[str, object]] = []
    for (degree, variant), measured in points.items():
        if len(measured) < 3:
            continue
        measured.sort()
        fitted, steepest = kernels_models.slopes([n + e for n, e, _ in measured], [time for *_, time in measured])
        verdict = "linear" if fitted <= kernels_models.SLOPE else "steeper than linear"
        note = f"slope of log time against log(n + E) {fitted:.3f} (target at most {kernels_models.SLOPE}): {verdict}"
        rows.append(
            {
                "benchmark": "kernels",
                "workload": f"growth, degree {degree}, {measured[0][0]:,} to {measured[-1][0]:,} nodes",
                "variant": variant,
                "ratio": f"{fitted:.3f}",
                "note": f"{note}; steepest between neighbouring sizes {steepest:.3f}",
            }
        )
    return rows


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--models", action="store_true", help="whole models instead of the convolution alone")
    parser.add_argument("--growth", action="store_true", help="whole models from 100,000 to 10,000,000 nodes")
    parser.add_argument("--nodes", type=int, nargs="+", help="with --models: graphs of these sizes only, no rivals")
    parser.add_argument("--degree", type=int, help="with --models: random graphs of this degree, of any size")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32", help="with --degree")
    parser.add_argument("--recompute", type=int, default=0, help="with --degree: layers per group, see GSSC")
    parser.add_argument(
        "--profile", type=int, metavar="NODES", help="with --models: then list the kernels of a step on this graph"
    )
    parser.add_argument("--tune", action="store_true", help="time ways to cut the work of the convolution instead")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, append."""
    options = parse(arguments)
    models = options.models or options.growth
    graphs = chosen_graphs(options) if models else []
    console = Console(width=140)
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.kernels: there is no GPU")
    bandwidth = copy_bandwidth()
    console.print(f"{hardware('cuda')}: copies at {bandwidth / 1e12:.2f} TB/s")
    if options.tune and not models:
        for line in kernels_conv.tune(kernels_conv.LARGE[-1], bandwidth):
            console.print(line)
        return
    everything: list[Result] = []
    rivals = options.nodes is None and options.degree is None
    for results in whole_models(console, graphs, rivals) if models else convolutions(bandwidth):
        everything += results
        show(console, results)
        append(options.out, [row(result, results[0], bandwidth) for result in results], "cuda")
    slopes = growth_rows(graphs, everything)
    append(options.out, slopes, "cuda")
    for slope in slopes:
        console.print(f"{slope['workload']}, {slope['variant']}: {slope['note']}", markup=False, highlight=False)
    for graph in graphs:
        if graph.nodes == options.profile:
            for line in (graph.name, *kernels_models.profiled(graph)):
                console.print(line, markup=False, highlight=False)
    if any("wrong" in result.problem for result in everything):
        raise SystemExit("benchmarks.kernels: some results were wrong")


if __name__ == "__main__":
    main()
