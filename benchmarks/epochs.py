"""Epochs of the recipes whose steps are replayed, on generated graphs of the size of their datasets.

    python -m benchmarks.epochs pattern cluster --seeds 1 5 --out benchmarks/results.csv

One training step of every recipe is timed over the batches of a few dozen steps, for one run and for several at once,
and an evaluation of as many graphs; what an epoch takes is reckoned from it by the number of steps and of validation
graphs. Beside it stands the least time by the bytes that message passing must move: with T one tensor of edges, 3 T
forward and 5 T backward in every layer, at the speed of a copy measured in the same run. ``--profile`` prints the
kernels of a step by their time instead.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.graphs import zinc_like
from benchmarks.harness import append, kernels_of
from gssc.config import Precision
from gssc.datasets import FlatGraphs, GraphDataset
from gssc.datasets.open import finish
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.train.build import about_data, build_model, build_stores
from gssc.train.evaluate import default_dtype
from gssc.train.processes import Processes
from gssc.train.replayed import ReplayedTrainer
from gssc.train.step import Position

ZINC = 220_011, 24_445  # graphs of zinc-full in training and validation


@dataclass(frozen=True)
class Size:
    """A dataset: graphs in training and validation, nodes of a graph, their spread, and how edges are drawn."""

    training: int
    validation: int
    nodes: float
    spread: float
    edges: Callable[[int, np.random.Generator], np.ndarray]


def blocks(
    inside: float, across: float, sizes: tuple[int, int] = (5, 35), number: int = 6
) -> Callable[..., np.ndarray]:
    """Both directions of the edges of a stochastic block model; the number of nodes is that of its blocks."""

    def draw(_: int, random: np.random.Generator) -> np.ndarray:
        block = np.repeat(np.arange(number), random.integers(*sizes, number))
        chance = np.where(block[:, None] == block, inside, across)
        upper = np.triu(random.random(chance.shape) < chance, 1)
        return np.stack(np.nonzero(upper | upper.T))

    return draw


def nearest(number: int) -> Callable[..., np.ndarray]:
    """Every point of a plane and so many nearest ones, as superpixels have them."""

    def draw(n: int, random: np.random.Generator) -> np.ndarray:
        points = random.random((n, 2))
        distance = ((points[:, None] - points) ** 2).sum(-1) + 9 * np.eye(n)
        near = np.argsort(distance, 1)[:, :number]
        return np.stack([np.repeat(np.arange(n), number), near.ravel()])

    return draw


def tree_like(extra: float) -> Callable[..., np.ndarray]:
    """A random tree and so many further edges per node, both directions."""

    def draw(n: int, random: np.random.Generator) -> np.ndarray:
        child = np.arange(1, n)
        back = random.integers(1, 4, n - 1)
        first = np.stack([np.maximum(child - back, 0), child])
        more = random.integers(0, n, (2, int(extra * n)))
        both = np.unique(np.concatenate([first, more[:, more[0] != more[1]]], 1), axis=1)
        return np.unique(np.concatenate([both, both[::-1]], 1), axis=1)

    return draw


SIZES = {
    "pattern": Size(10_000, 2_000, 119, 0, blocks(0.5, 0.41)),
    "cluster": Size(10_000, 1_000, 117, 0, blocks(0.55, 0.25)),
    "cifar10": Size(45_000, 5_000, 117.6, 6, nearest(8)),
    "mnist": Size(55_000, 5_000, 70.6, 4, nearest(8)),
    "peptides-func": Size(10_873, 2_331, 150.9, 84, tree_like(0.02)),
    "molhiv": Size(32_901, 4_113, 25.5, 12, tree_like(0.08)),
    "malnet-tiny": Size(3_500, 500, 1_410, 1_100, tree_like(0.02)),
}


def generated(name: str, graphs: int, seed: int) -> FlatGraphs:
    """So many graphs with the features and targets of a dataset drawn at random."""
    size, spec, random = SIZES[name], SPECS[name], np.random.default_rng(seed)
    counts = np.clip(np.rint(size.nodes + size.spread * random.standard_normal(graphs)), 5, 5_000).astype(int)
    edges = [size.edges(n, random) for n in counts.tolist()]
    counts = np.array([max(int(e.max()) + 1, 1) for e in edges])
    ptr, edge_ptr = (
        torch.from_numpy(np.concatenate([[0], np.cumsum(c)])) for c in (counts, [e.shape[1] for e in edges])
    )
    generator = torch.Generator().manual_seed(seed)

    def columns(features: object, rows: int) -> Tensor | None:
        if features is None:
            return None
        if isinstance(features, tuple):
            return torch.stack([torch.randint(n, (rows,), generator=generator) for n in features], 1)
        return torch.randn(rows, int(str(features)), generator=generator)

    nodes, rows = int(ptr[-1]), int(ptr[-1]) if spec.task.level == "node" else graphs
    y = torch.randint(2, (rows, spec.task.outputs), generator=generator).float()
    if spec.task.kind == "multiclass":
        y = torch.randint(spec.task.outputs, (rows,), generator=generator)
    x, attr = columns(spec.node_features, nodes), columns(spec.edge_features, int(edge_ptr[-1]))
    return FlatGraphs(ptr, edge_ptr, torch.from_numpy(np.concatenate(edges, 1)), x, attr, y)


def dataset_of(name: str, batch: int, steps: int) -> GraphDataset:
    """Enough training graphs for a short epoch, and a few batches of validation graphs."""
    if name.startswith("zinc"):
        return finish(name, SPECS[name], {"train": zinc_like(steps * batch), "val": zinc_like(batch, 1)})
    graphs = {"train": generated(name, steps * batch, 0), "val": generated(name, 4 * batch, 1)}
    return finish(name, replace(SPECS[name], standardize=()), graphs)


def run_epochs(trainers: Sequence[ReplayedTrainer], streams: Sequence[Any], epoch: int) -> None:
    """An epoch of every run at once, each in a thread with a stream of its own, as ``gssc train --jobs`` does it."""

    def one(trainer: ReplayedTrainer, stream: Any) -> None:
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            trainer.run_epoch(Position(epoch, 0, []), lambda: False)
            if stream is not None:
                stream.synchronize()

    with ThreadPoolExecutor(len(trainers)) as pool:
        list(pool.map(one, trainers, streams))


def wait(device: torch.device) -> None:
    """Until the device has nothing to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def copy_bandwidth(device: torch.device, numbers: int = 1 << 28) -> float:
    """Bytes read and written by a large copy on the device, per second."""
    source = torch.randn(numbers, device=device)
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        wait(device)
        start = time.perf_counter()
        target.copy_(source)
        wait(device)
        seconds.append(time.perf_counter() - start)
    return 2 * source.numel() * 4 / min(seconds)


class Work:
    """A recipe on generated graphs, ready to be trained by several seeds at once."""

    def __init__(
        self, name: str, batch_size: int | None, precision: Precision, device: torch.device, steps: int
    ) -> None:
        recipe = find_recipe(name)
        self.name, self.device, self.steps = name, device, steps
        self.batch = batch_size or recipe.train.batch_size
        self.recipe = replace(recipe, train=replace(recipe.train, batch_size=self.batch, precision=precision))
        self.dataset = dataset_of(name, self.batch, steps)
        self.stores = build_stores(self.dataset, self.recipe, device, None)
        training, self.validation = (SIZES[name].training, SIZES[name].validation) if name in SIZES else ZINC
        self.steps_of_epoch = -(-training // self.batch)

    def trainers(self, number: int) -> list[ReplayedTrainer]:
        """So many runs."""
        made = []
        for seed in range(number):
            torch.manual_seed(seed)
            model = build_model(self.recipe, about_data(self.recipe, self.dataset)).to(self.device)
            made.append(ReplayedTrainer(model, self.stores["train"], self.dataset.task, self.recipe, seed, Processes()))
        return made

    def times(self, trainers: Sequence[ReplayedTrainer], epochs: int) -> tuple[float, float]:
        """Milliseconds of a step of all runs, and seconds of an epoch's evaluations of all runs; medians."""
        streams = [torch.cuda.Stream() if self.device.type == "cuda" else None for _ in trainers]
        stepping, scoring = [], []
        for epoch in range(1, epochs + 3):  # two to capture and to warm up
            wait(self.device)
            start = time.perf_counter()
            run_epochs(trainers, streams, epoch)
            wait(self.device)
            middle = time.perf_counter()
            for trainer in trainers:
                trainer.evaluate(self.stores["val"])
            wait(self.device)
            stepping.append(1e3 * (middle - start) / self.steps)
            scoring.append((time.perf_counter() - middle) / self.stores["val"].num_graphs * self.validation)
        return statistics.median(stepping[2:]), statistics.median(scoring[2:])

    def floor_ms(self, bandwidth: float) -> float:
        """Milliseconds of a step in which edges of all layers are read and written as seldom as can be."""
        edges, model = self.dataset.splits["train"].num_edges / self.steps, self.recipe.model
        return 1e3 * edges * model.channels * 4 * 8 * model.layers / bandwidth


def profiled(trainer: ReplayedTrainer) -> Iterator[str]:
    """The kernels of a step by their time."""
    trainer.epoch.fill(trainer.batches(1))
    return kernels_of(trainer.epoch.captured(trainer.epoch.next[0]), 60)


def main(arguments: list[str] | None = None) -> None:
    """Time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=[*SIZES], help=f"of {', '.join(SIZES)}, zinc-full")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 5], help="how many runs at once")
    parser.add_argument("--batch-size", type=int, default=None, help="in place of the recipe's")
    parser.add_argument("--precision", default="tf32", choices=("float32", "tf32", "bf16"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=24, help="of a short epoch")
    parser.add_argument("--epochs", type=int, default=5, help="how often it is timed")
    parser.add_argument("--profile", action="store_true", help="print the kernels of a step")
    parser.add_argument("--out", type=Path, default=None, help="results file to append to")
    options = parser.parse_args(arguments)
    device, rows = torch.device(options.device), list[dict[str, object]]()
    bandwidth = copy_bandwidth(device, 1 << (28 if device.type == "cuda" else 22))
    for name, number in product(options.recipes, options.seeds):
        with default_dtype(options.precision):
            work = Work(name, options.batch_size, options.precision, device, options.steps)
            trainers = work.trainers(number)
            step, evaluation = work.times(trainers, options.epochs)
            what, least = f"{name}, batch {work.batch}, {options.precision}", work.floor_ms(bandwidth) * number
            epoch = f"{step * work.steps_of_epoch / 1e3 + evaluation:.2f} s per epoch, evaluation {evaluation:.2f}"
            print(f"{what}, {number} at once: {step:.2f} ms per step (floor {least:.2f}), {epoch}", flush=True)
            row: dict[str, object] = {"benchmark": "epochs", "workload": what, "variant": f"{number} at once"}
            rows.append(row | {"p50_ms": f"{step:.3f}", "note": f"{epoch}; floor of a step {least:.2f} ms"})
            if options.profile:
                print(*profiled(trainers[0]), sep="\n", flush=True)
            del trainers
    if options.out is not None:
        append(options.out, rows, device.type)


if __name__ == "__main__":
    main()
