"""A user's own loop: GSSC against PyG's GPSConv, forward and backward, no replay, one process.

    python -m benchmarks.launched --device cuda --out benchmarks/results.csv

Four layers of width 96, both with gated message passing, a feed-forward network and batch normalisation; GPSConv with
multihead attention. Graphs: 32 molecules of 23 nodes, 32 graphs of 480 nodes, one random graph of n nodes with 1 % of
n² directed edges below 10,000 nodes and 0.1 % from there. A model that runs out of memory is said to.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.nn import GPSConv, ResGatedGraphConv

from benchmarks.harness import append
from gssc import GSSC

WIDTH, LAYERS, HEADS, FREQUENCIES = 96, 4, 4, 32
TURN = 5  # steps of one model before the other has its turn
SIZES = ("molecules", "480 nodes x 32", "1000", "2000", "5000", "10000", "20000", "40000", "60000")


class GPS(nn.Module):
    """As PyG's example builds it, with GPSConv."""

    def __init__(self, edges: bool) -> None:
        super().__init__()
        self.node = nn.Linear(WIDTH, WIDTH)
        self.edge = nn.Linear(WIDTH, WIDTH) if edges else None
        edge_dim = WIDTH if edges else None
        self.layers = nn.ModuleList(
            GPSConv(WIDTH, ResGatedGraphConv(WIDTH, WIDTH, edge_dim=edge_dim), heads=HEADS) for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None, batch: Tensor) -> Tensor:
        x = self.node(x)
        more = {} if self.edge is None else {"edge_attr": self.edge(edge_attr)}
        for layer in self.layers:
            x = layer(x, edge_index, batch, **more)
        return self.head(x)


def edges_of(n: int) -> int:
    """Directed edges of the random graph of n nodes."""
    return n * n // (100 if n < 10_000 else 1000)


def workload(name: str, device: torch.device) -> dict[str, Tensor]:
    """A batch with features, edges and eigenvectors; the latter are random, since only their size matters here."""
    torch.manual_seed(0)
    if name == "molecules":
        graphs, n, degree = 32, 23, 2.15
    elif name.startswith("480"):
        graphs, n, degree = 32, 480, 5.6
    else:
        graphs, n = 1, int(name)
        degree = edges_of(n) / n
    edges = int(graphs * n * degree)
    graph = torch.randint(graphs, (edges,)).sort().values
    edge_index = torch.randint(n, (2, edges)) + graph * n
    tensors = {
        "x": torch.randn(graphs * n, WIDTH),
        "edge_index": edge_index,
        "batch": torch.arange(graphs).repeat_interleave(n),
        "eigvals": torch.rand(graphs, FREQUENCIES).sort(1).values,
        "eigvecs": torch.randn(graphs * n, FREQUENCIES) / n**0.5,
        "eigmask": torch.ones(graphs, FREQUENCIES, dtype=torch.bool),
    }
    if graphs > 1:
        tensors["edge_attr"] = torch.randn(edges, WIDTH)
    return {key: value.to(device) for key, value in tensors.items()}


def steps(name: str, data: dict[str, Tensor], training: bool) -> Callable[[], Tensor]:
    """One step of a model: forward and backward, or inference."""
    device, edges = data["x"].device, "edge_attr" in data
    if name == "gssc":
        model: nn.Module = GSSC(
            1, WIDTH, LAYERS, node_features=WIDTH, edge_features=WIDTH if edges else None, level="node", head="linear"
        ).to(device)

        def forward() -> Tensor:
            return model(**data)
    else:
        model = GPS(edges).to(device)

        def forward() -> Tensor:
            return model(data["x"], data["edge_index"], data.get("edge_attr"), data["batch"])

    model.train(training)
    parameters = list(model.parameters())

    def train() -> Tensor:
        for parameter in parameters:  # as an optimiser does it
            parameter.grad = None
        loss = forward().square().mean()
        loss.backward()
        return loss

    def infer() -> Tensor:
        with torch.no_grad():
            return forward()

    return train if training else infer


def prepare(step: Callable[[], Tensor], device: torch.device, warmups: int = 5) -> float:
    """Warm up; peak memory in MB, or NaN where there is not enough."""
    try:
        for _ in range(warmups):
            step()
        if device.type != "cuda":
            return 0.0
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated() / 2**20
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return float("nan")


def measure(functions: dict[str, Callable[[], Tensor]], device: torch.device, seconds: float) -> dict[str, float]:
    """Median time of a step in ms, of models in turns: a host that others share is not equally fast all the time."""
    sync = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    times: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds * len(functions)
    while functions and (time.perf_counter() < end or len(next(iter(times.values()))) < TURN):
        for name, step in functions.items():
            for _ in range(TURN):
                begin = time.perf_counter()
                step()
                sync()
                times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Measure, print and, if asked, record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=1.0, help="time of each measurement")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES))
    parser.add_argument("--out", type=Path, help="a CSV file to append to")
    options = parser.parse_args()
    device = torch.device(options.device)
    rows = []
    for size in options.sizes:
        data = workload(size, device)
        for training in (True, False):
            functions = {name: steps(name, data, training) for name in ("gssc", "GPSConv")}
            peaks = {name: prepare(step, device) for name, step in functions.items()}
            fitting = {name: step for name, step in functions.items() if peaks[name] == peaks[name]}
            medians = measure(fitting, device, options.seconds)
            found = {name: (medians.get(name, float("nan")), peaks[name]) for name in functions}
            del functions, fitting
            if device.type == "cuda":
                torch.cuda.empty_cache()
            kind = "training" if training else "inference"
            (ours, memory), (theirs, other) = found["gssc"], found["GPSConv"]
            both = f"gssc {ours:8.2f} ms {memory:7.0f} MB   GPSConv {theirs:8.2f} ms {other:7.0f} MB"
            print(f"{size:>15} {kind:9}  {both}   ratio {theirs / ours:6.2f}", flush=True)
            rows.append((size, kind, found))
    if options.out is not None:
        write(rows, options.out, device)


def write(rows: list[tuple[str, str, dict[str, tuple[float, float]]]], out: Path, device: torch.device) -> None:
    """Append to the table of results, one row per model."""
    records: list[dict[str, object]] = []
    for size, kind, found in rows:
        for name, (median, peak) in found.items():
            record: dict[str, object] = {"workload": f"{size}, {kind}", "variant": name, "p50_ms": f"{median:.3f}"}
            record |= {"peak_mb": f"{peak:.0f}", "note": "out of memory" if median != median else ""}
            if name != "gssc":
                record |= {"baseline": "gssc", "ratio": f"{median / found['gssc'][0]:.2f}"}
            records.append({"benchmark": "launched", **record})
    append(out, records, device.type)


if __name__ == "__main__":
    main()
