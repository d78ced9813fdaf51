"""Weak scaling of one graph over processes: one with n nodes against two with 2 n, of one thread each.

    python -m benchmarks.scale --nodes 20000 --steps 10
    python -m benchmarks.scale --device cuda --nodes 1000000     # processes that share what GPUs there are

Roads-like graphs (`benchmarks.roads`), four layers of width 96 with GatedGCN, BatchNorm and 32 frequencies (random
vectors: only their size matters here), AdamW. Times are medians of steps, in turns; besides, two processes that know
nothing of each other say what the machine has for two at that time. The bytes that a process gives to
collectives are counted and compared with `gssc.shards.plan`; gradients of weights are summed besides.

Then `gssc plan` is compared with runs of 1, 2 and 4 processes. Its constants are measured here: the speed of a step of
one process, and what a collective of few bytes and one of many take between two that do nothing else. And one process
with the graph of two takes their steps: its losses must be theirs. NCCL takes a GPU for each process; where there are
fewer, Gloo copies through pinned memory.
"""

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from benchmarks.roads import roads
from gssc import GSSC
from gssc.shards import Shard, assign_nodes, cut_graph, make_ready
from gssc.shards.plan import collectives, held_bytes, multiply_adds, sent_bytes
from gssc.train.processes import leave

CHANNELS, FREQUENCIES, LAYERS = 96, 32, 4
FEW, MANY = 1_000, 16_000_000  # bytes of collectives that are timed


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Inside, the bytes that this process gives to collectives: ``halo``, ``norms``, ``state``."""
    sent: Counter[str] = Counter()
    exchange, reduce = dist.all_to_all_single, dist.all_reduce

    def count_exchange(output: Tensor, given: Tensor, *arguments: Any, **options: Any) -> Any:
        sent["halo"] += given.nbytes
        return exchange(output, given, *arguments, **options)

    def count_reduce(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        sent[{2: "norms", 3: "state"}.get(tensor.dim(), "other")] += tensor.nbytes
        return reduce(tensor, *arguments, **options)

    patched: Any = dist
    patched.all_to_all_single, patched.all_reduce = count_exchange, count_reduce
    try:
        yield sent
    finally:
        patched.all_to_all_single, patched.all_reduce = exchange, reduce


def backend_of(device: str, processes: int) -> str:
    """NCCL where every process has a GPU."""
    return "nccl" if device == "cuda" and torch.cuda.device_count() >= processes else "gloo"


def timed(function: Callable[[], object], device: torch.device) -> float:
    """Seconds that it takes."""
    finish: Callable[[], object] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    finish()
    start = time.perf_counter()
    function()
    finish()
    return time.perf_counter() - start


def peak(device: torch.device) -> int:
    """The most bytes that were held so far: of the device, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def pings(ranks: int, device: torch.device) -> tuple[float, float]:
    """Seconds of a sum of few bytes, and bytes per second that a process sends others."""
    few, many = torch.zeros(FEW // 4, device=device), torch.zeros(MANY // 4, device=device)
    latency = statistics.median(timed(lambda: dist.all_reduce(few), device) for _ in range(50))
    exchange = partial(dist.all_to_all_single, torch.empty_like(many), many)
    seconds = statistics.median(timed(exchange, device) for _ in range(8)) - latency
    return latency, MANY * (ranks - 1) / ranks / max(seconds, 1e-9)


def run(process: int, ranks: int, blocks: int, nodes: int, steps: int, device: str, folder: str) -> None:
    """One process of so many ``ranks`` that have a graph of ``blocks`` · ``nodes``: what a step took, sent and held."""
    torch.set_num_threads(1)
    rank, store = process % ranks, f"file://{folder}/store-{process // ranks}"
    here = torch.device(device, process % torch.cuda.device_count()) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(here)
    dist.init_process_group(backend_of(device, ranks), store, world_size=ranks, rank=rank)
    side = int(nodes**0.5)
    graph = roads(side, blocks * side, labels=False)
    part, _ = assign_nodes(graph.edge_index, graph.num_nodes, ranks, "propagation")
    torch.manual_seed(0)
    rows = {"x": graph.x, "y": graph.y, "eigvecs": torch.randn(graph.num_nodes, FREQUENCIES) / graph.num_nodes**0.5}
    tensors = list(cut_graph(graph.edge_index, part, ranks, rows, {"edge_attr": graph.edge_attr}))[rank]
    spectrum = {"eigvals": torch.rand(1, FREQUENCIES), "eigmask": torch.ones(1, FREQUENCIES, dtype=torch.bool)}
    shard = Shard(tensors | spectrum, graph.num_nodes, here)
    model = GSSC(10, CHANNELS, LAYERS, node_features=3, edge_features=1, level="node", phi_channels=32).to(here)
    make_ready(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**shard.inputs), shard.here("y"), reduction="sum")
        loss = loss / graph.num_nodes
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([loss.detach().view(1), *(gradient.view(-1) for gradient in gradients)])
        dist.all_reduce(flat)
        parts = flat[1:].split([gradient.numel() for gradient in gradients])
        for gradient, total in zip(gradients, parts, strict=True):
            gradient.copy_(total.view_as(gradient))
        losses.append(float(flat[0]))
        optimizer.step()

    before = peak(here)
    with counted() as sent:
        step()
    seconds = [timed(step, here) for _ in range(steps)]
    # Rows go out in the forward pass, and gradients of those that came in the backward pass.
    mean = (shard.halo.size + shard.halo.send.numel()) / 2
    own = shard.inputs["num_nodes"], shard.inputs["edge_index"].shape[1]
    about = {"seconds": statistics.median(seconds), "nodes": graph.num_nodes, "halo": mean, "sent": sent, "own": own}
    about |= {"held": peak(here) - before, "losses": losses, "pings": pings(ranks, here) if ranks > 1 else None}
    torch.save(about, f"{folder}/{process}.pt")
    leave()


def measure(processes: int, ranks: int, blocks: int, nodes: int, steps: int, device: str) -> dict[str, Any]:
    """What processes, so many of which are one run, report: of the slowest, with the nodes of all."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (ranks, blocks, nodes, steps, device, folder), nprocs=processes)
        found = [torch.load(Path(folder, f"{process}.pt"), weights_only=False) for process in range(processes)]
    slowest = max(found, key=lambda one: one["seconds"])
    return slowest | {"nodes": slowest["nodes"] * processes // ranks}


def compare_with_plan(runs: dict[int, dict[str, Any]], places: int) -> None:
    """Print what `gssc plan` says of a step, and what it took, by the number of processes."""
    (one, two), (latency, bandwidth) = (runs[1], runs[2]), runs[2]["pings"]
    form = CHANNELS, FREQUENCIES, LAYERS
    speed = multiply_adds(one["own"][0], one["own"][1], *form) / one["seconds"]
    constants = f"--speed {speed:.3g} --bandwidth {bandwidth:.3g} --latency {latency:.3g}"
    print(
        f"gssc plan --nodes {two['nodes']} --degree {two['own'][1] / two['own'][0]:.2f} --gpus 2 --width 4 {constants}"
    )
    for ranks, found in runs.items():
        nodes, edges = found["own"]
        work = multiply_adds(nodes, edges, *form) / speed * max(1.0, ranks / places)
        sent = sent_bytes(round(found["halo"]), ranks, CHANNELS, FREQUENCIES, 4)
        told = LAYERS * sum(sent.values()) / bandwidth + latency * collectives(LAYERS) if ranks > 1 else 0.0
        held = held_bytes(nodes, edges, *form, 4)["all layers"]
        took, mean = found["seconds"], work + told / 2
        print(
            f"{ranks} processes: {work:.3f} to {work + told:.3f} s planned, {took:.3f} s taken ({took / mean - 1:+.0%})"
        )
        off = found["held"] / held - 1
        print(f"    {held / 1e6:.0f} MB planned for the layers, {found['held'] / 1e6:.0f} MB held at most ({off:+.0%})")


def main() -> None:
    """One process against two, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000, help="of one process")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    places = torch.cuda.device_count() if options.device == "cuda" else len(os.sched_getaffinity(0))
    backends = {backend_of(options.device, ranks) for ranks in (2, 4)}
    print(f"{options.device}, {places} to share, collectives by {' and '.join(sorted(backends))}", flush=True)
    kinds = {"one": (1, 1, 1), "two apart": (2, 1, 1), "two": (2, 2, 2)}
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    last = {}
    settings = options.nodes, options.steps, options.device
    for _ in range(options.turns):
        for kind, processes in kinds.items():
            found = last[kind] = measure(*processes, *settings)
            rates[kind].append(found["nodes"] / found["seconds"])
            print(f"{kind}: {found['nodes']:,} nodes, {rates[kind][-1]:,.0f} nodes/s", flush=True)
    expected = sent_bytes(1, 2, CHANNELS, FREQUENCIES, width=4)
    expected["halo"] = round(expected["halo"] * found["halo"])
    for name, size in expected.items():
        print(f"{name}: {found['sent'][name]:,} bytes in {LAYERS} layers, {LAYERS * size:,} by the formula")
    one, apart, two = (statistics.median(found) for found in rates.values())
    print(
        f"two processes: {two / one:.2f} times the nodes per second of one, {two / apart:.2f} times those of two apart"
    )
    whole = measure(1, 1, 2, *settings)
    worst = max(abs(a / b - 1) for a, b in zip(found["losses"], whole["losses"], strict=True))
    print(f"losses of {options.steps + 1} steps differ from those of one process with all nodes by {worst:.1e} at most")
    compare_with_plan({1: last["one"], 2: found, 4: measure(4, 4, 4, *settings)}, places)


if __name__ == "__main__":
    main()
