"""A graph that no process holds: written to disk in pieces, partitioned from there, trained on by several processes.

    python -m benchmarks.stream --nodes 1e7 --folder FOLDER

A grid in which each node is joined to those within two rows or columns of it, one edge of six missing: ten directed
edges per node, and numbers drawn at random (``--ordered``: row by row). A node's label is the sign of the mean of noise
in the 5 × 5 nodes around it, so neighbours have to be heard. Then ``gssc partition``, and steps of AdamW by
``torchrun`` on a narrow model of GCN and global parts, whose positions are `RandomFeatures` made on the shards; each
line says the peak of the resident memory of a process (pages of mapped files among them) and its seconds.

    python -m benchmarks.stream --stage cuts --nodes 5e5
"""

import argparse
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from scipy.ndimage import uniform_filter

from benchmarks.roads import roads
from gssc import GSSC, RandomFeatures
from gssc.cli import app
from gssc.shards import Shard, assign_nodes, make_ready, open_shards, partition
from gssc.shards.spectrum import random_features
from gssc.train.processes import leave

OFFSETS = ((0, 1), (0, 2), (1, -1), (1, 0), (1, 1), (2, 0))  # of neighbours further on: rows and columns
MISSING, PROBES, HEADER = 1 / 6, 8, 128


def generate(folder: Path, nodes: int, ordered: bool = False, seed: int = 0) -> int:
    """Write a graph as a folder of arrays, a hundred rows of the grid at a time; returns how many edges it has."""
    folder.mkdir(parents=True, exist_ok=True)
    side, generator, edges = int(nodes**0.5), np.random.default_rng(seed), 0
    number = np.arange(side**2, dtype=np.int32)
    if not ordered:
        generator.shuffle(number)
    grid = number.reshape(side, side)
    with (folder / "edge_index.npy").open("wb") as file:
        file.seek(HEADER)  # it says how many edges there are
        for first in range(0, side, 100):
            pairs = []
            for down, right in OFFSETS:
                rows = slice(first, min(first + 100, side - down))
                here = grid[rows, max(0, -right) : side - max(0, right)]
                there = grid[rows.start + down : rows.stop + down, max(0, right) : side - max(0, -right)]
                pairs.append(np.stack([here[: len(there)].ravel(), there.ravel()], axis=1))
            some = np.concatenate(pairs)
            some = some[generator.random(len(some)) >= MISSING]
            both = np.concatenate([some, some[:, ::-1]])
            both.tofile(file)
            edges += len(both)
        file.seek(0)
        about = {"descr": "<i4", "fortran_order": False, "shape": (edges, 2)}
        np.lib.format.write_array_header_1_0(file, about)
        if file.tell() != HEADER:
            raise RuntimeError(f"a header of {file.tell()} bytes")
    noise = generator.standard_normal((side, side), dtype=np.float32)
    arrays = {"x": noise, "y": uniform_filter(noise, 5) > 0}
    part = generator.random((side, side), dtype=np.float32)
    arrays |= {"train_mask": part < 0.5, "val_mask": (part >= 0.5) & (part < 0.75), "test_mask": part >= 0.75}
    for name, values in arrays.items():
        placed = np.empty(side**2, dtype=values.dtype)
        placed[number] = values.ravel()
        np.save(folder / f"{name}.npy", placed)
    return edges


def cuts(side: int) -> None:
    """Percent of edges that partitions cut: of graphs as they are and, as larger ones are, by clusters of nodes."""
    generator = torch.Generator().manual_seed(1)
    data = roads(side, side, labels=False)
    renumbered = torch.randperm(data.num_nodes, generator=generator)[data.edge_index]
    ends = torch.randint(0, side**2 // 4, (2, 5 * (side**2 // 4)), generator=generator)
    drawn = torch.cat([ends, ends.flip(0)], 1)
    most = partition.MOST_EDGES
    for name, edges in (("roads", data.edge_index), ("numbered at random", renumbered), ("random", drawn)):
        nodes = int(edges.max()) + 1
        for ranks in (2, 8):
            shares = []
            for partition.MOST_EDGES in (most, edges.shape[1] // 5):
                part, _ = assign_nodes(edges, nodes, ranks, "propagation")
                shares.append(f"{100 * float((part[edges[0]] != part[edges[1]]).double().mean()):.3g}")
            print(f"{name}, {nodes:,} nodes, {ranks} parts: {shares[0]}, by clusters {shares[1]}", flush=True)


def train(folder: Path, steps: int, channels: int, layers: int) -> None:
    """One process of ``torchrun``: its shard alone, and steps on the whole graph."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    start, rank = time.perf_counter(), dist.get_rank()
    opened = replace(open_shards(folder).shard(rank), index=torch.int32)
    wanted = RandomFeatures(k=PROBES)
    positions = random_features(opened, wanted).float()
    # λ = 0 for all columns: those of one kernel share their gain.
    spectrum = {"eigvals": torch.zeros(1, PROBES), "eigmask": torch.ones(1, PROBES, dtype=torch.bool)}
    shard = Shard({**opened.tensors, **spectrum, "eigvecs": positions}, opened.nodes, index=torch.int32)
    del opened
    said = [f"features {time.perf_counter() - start:.0f} s, {peak():.2f} GB"]
    torch.manual_seed(0)
    model = GSSC(1, channels, layers, node_features=1, local="gcn", level="node", phi_channels=4, recompute=1)
    make_ready(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    y, mask = shard.here("y").view(-1), shard.here("train_mask")
    known = shard.halo.sum(mask.sum().view(1))
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        out = model(**shard.inputs).view(-1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(out[mask], y[mask], reduction="sum") / known
        loss.sum().backward()
        for parameter in model.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        total = float(shard.halo.sum(loss.detach()))
        said.append(f"loss {total:.4f} in {time.perf_counter() - start:.0f} s, {peak():.2f} GB")
    sizes = f"{shard.inputs['num_nodes']:,} nodes, {shard.inputs['edge_index'].shape[1]:,} edges"
    print("\n".join(f"process {rank} ({sizes}): {line}" for line in said), flush=True)
    leave()


def peak() -> float:
    """The largest resident memory of this process so far, in GB."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024 / 1e9


def main() -> None:
    """Each stage in a process of its own, so that its peak is its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=("all", "generate", "partition", "train", "cuts"), default="all")
    parser.add_argument("--folder", type=Path, default=Path("runs/stream"), help="of arrays and shards, which stay")
    parser.add_argument("--nodes", type=float, default=1e5)
    parser.add_argument("--ordered", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--method", default="propagation")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--layers", type=int, default=3)
    options = parser.parse_args()
    arrays, shards = options.folder / "arrays", options.folder / "shards"
    start = time.perf_counter()
    if options.stage == "all":
        stages = {stage: [sys.executable] for stage in ("generate", "partition", "train")}
        stages["train"] += ["-m", "torch.distributed.run", "--nproc-per-node", str(options.processes)]
        for stage, command in stages.items():
            subprocess.run([*command, "-m", "benchmarks.stream", *sys.argv[1:], "--stage", stage], check=True)
    elif options.stage == "cuts":
        cuts(int(options.nodes**0.5))
    elif options.stage == "train":
        train(shards, options.steps, options.channels, options.layers)
    else:
        if options.stage == "generate":
            print(f"{generate(arrays, int(options.nodes), options.ordered):,} edges")
        else:
            words = ["-p", str(options.processes), "-o", str(shards), "--method", options.method, "--threads", "1"]
            app(["partition", str(arrays), *words], standalone_mode=False)
        print(f"{options.stage}: {time.perf_counter() - start:.0f} s, {peak():.2f} GB", flush=True)


if __name__ == "__main__":
    main()
