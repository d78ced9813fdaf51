"""Weak scaling of one graph over processes: one with n nodes against two with 2 n, of one thread each.

    python -m benchmarks.scale --nodes 20000 --steps 10

Roads-like graphs (`benchmarks.roads`), four layers of width 96 with GatedGCN, BatchNorm and 32 frequencies (random
vectors: only their size matters here), AdamW. Times are medians of steps, in turns; besides, two processes that know
nothing of each other say what the machine has for two at that time. The bytes that a process gives to
collectives are counted and compared with `gssc.shards.plan`; gradients of weights are summed besides.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from benchmarks.roads import roads
from gssc import GSSC
from gssc.shards import Shard, assign_nodes, cut_graph, make_ready
from gssc.shards.plan import sent_bytes

CHANNELS, FREQUENCIES, LAYERS = 96, 32, 4


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


def run(process: int, ranks: int, nodes: int, steps: int, folder: str) -> None:
    """One process: median seconds of a step, and what it sent in one."""
    torch.set_num_threads(1)
    rank, store = process % ranks, f"file://{folder}/store-{process // ranks}"
    dist.init_process_group("gloo", store, world_size=ranks, rank=rank)
    side = int(nodes**0.5)
    graph = roads(side, ranks * side, labels=False)
    part, _ = assign_nodes(graph.edge_index, graph.num_nodes, ranks, "propagation")
    rows = {"x": graph.x, "y": graph.y, "eigvecs": torch.randn(graph.num_nodes, FREQUENCIES) / graph.num_nodes**0.5}
    tensors = list(cut_graph(graph.edge_index, part, ranks, rows, {"edge_attr": graph.edge_attr}))[rank]
    spectrum = {"eigvals": torch.rand(1, FREQUENCIES), "eigmask": torch.ones(1, FREQUENCIES, dtype=torch.bool)}
    shard = Shard(tensors | spectrum, graph.num_nodes)
    torch.manual_seed(0)
    model = GSSC(10, CHANNELS, LAYERS, node_features=3, edge_features=1, level="node", phi_channels=32)
    make_ready(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(**shard.inputs), shard.here("y")) / ranks
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.view(-1) for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, total in zip(gradients, flat.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(total.view_as(gradient))
        optimizer.step()

    with counted() as sent:
        step()
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    # Rows go out in the forward pass, and gradients of those that came in the backward pass.
    mean = (shard.halo.size + shard.halo.send.numel()) / 2
    about = {"seconds": statistics.median(seconds), "nodes": graph.num_nodes, "halo": mean, "sent": sent}
    torch.save(about, f"{folder}/{process}.pt")
    dist.destroy_process_group()


def measure(processes: int, ranks: int, nodes: int, steps: int) -> dict[str, Any]:
    """What processes, so many of which are one run, report: of the slowest, with the nodes of all."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(run, (ranks, nodes, steps, folder), nprocs=processes)
        found = [torch.load(Path(folder, f"{process}.pt"), weights_only=False) for process in range(processes)]
    slowest = max(found, key=lambda one: one["seconds"])
    return slowest | {"nodes": slowest["nodes"] * processes // ranks}


def main() -> None:
    """One process against two, in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000, help="of one process")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    kinds = {"one": (1, 1), "two apart": (2, 1), "two": (2, 2)}
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(options.turns):
        for kind, processes in kinds.items():
            found = measure(*processes, options.nodes, options.steps)
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


if __name__ == "__main__":
    main()
