"""Training steps of the zinc-12k recipe: our store and layer against PyG's DataLoader and explicit z tensors.

    python -m gssc.bench.training --out benchmarks/results.csv [--data-root DIR]

All sides train the same model: the same parameters, function, loss, clipping and optimiser, on the same graphs with
spectra at hand. They differ in how it is computed:

- *gssc train*: batches from the store and the model as ``gssc train`` runs them on a CPU.
- *DataLoader*: ``gssc.GSSC`` in a script with PyG's ``DataLoader`` and ``torch.optim.AdamW`` with its defaults.
- *DataLoader, explicit z*: such a script, with the model as one writes it from the paper (``plain_molecules.py``).
  Nothing that this package made fast serves it: GINE, dropout, norms and pooling are those of PyG and PyTorch. But
  neither is it made slow: z is computed once per step for all layers, as the released code does it, log(degree) too;
  z stays packed [N, K, c], which is faster here than the padded form of the released code; products over graphs are
  batched, without a loop; and the loader works with no worker and with one, of which the better counts.

Batches of the same size are drawn in random order everywhere. The molecules are those of ZINC where ``--data-root`` has
them, generated ones of their size otherwise. Each side is timed with one thread and with all, in rounds, and the better
median counts: small operations gain little from a second thread, large ones do. Ratios are medians over rounds.
"""

import argparse
import statistics
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from gssc import model_inputs
from gssc.bench.harness import append, gate
from gssc.bench.molecules import molecule_like
from gssc.bench.plain_molecules import PlainModel
from gssc.config import Recipe
from gssc.datasets import FlatGraphs, flatten, open_dataset
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.spectra import prepare
from gssc.testing import assert_close
from gssc.train.build import build_model, build_store, transforms
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer

GRAPHS, SEED = 2_000, 0
ROUNDS, WINDOW = 9, 2.0  # at most so many rounds, and seconds of a measurement in one at least


def molecules(root: Path | None) -> tuple[str, list[Data], FlatGraphs]:
    """Training graphs, as PyG data and as flat tensors."""
    task = SPECS["zinc-12k"].task
    if root is not None:
        flat = open_dataset("zinc-12k", root).splits["train"]
        name = f"zinc-12k, {GRAPHS} graphs"
    else:
        dataset = molecule_like(GRAPHS, SEED)
        generator = torch.Generator().manual_seed(SEED)
        nodes, edges = dataset._data.num_nodes, dataset._data.edge_index.shape[1]
        dataset._data.x = torch.randint(28, (nodes, 1), generator=generator)
        dataset._data.edge_attr = torch.randint(1, 4, (edges, 1), generator=generator)
        dataset._data.y = torch.randn(GRAPHS, generator=generator)
        dataset.slices |= {"edge_attr": dataset.slices["edge_index"], "y": torch.arange(GRAPHS + 1)}
        flat = flatten(dataset, task)
        name = f"generated molecules, {GRAPHS} graphs"
    graphs = []
    assert flat.x is not None
    assert flat.edge_attr is not None
    for g in range(min(GRAPHS, flat.num_graphs)):
        rows, edges_of = slice(*flat.ptr[g : g + 2].tolist()), slice(*flat.edge_ptr[g : g + 2].tolist())
        graphs.append(
            Data(
                x=flat.x[rows],
                edge_index=flat.edge_index[:, edges_of],
                edge_attr=flat.edge_attr[edges_of],
                y=flat.y[g : g + 1],
            )
        )
    return name, graphs, flatten(graphs, task)


def loader_steps(model: nn.Module, graphs: list[Data], recipe: Recipe, workers: int = 0) -> Iterator[int]:
    """Training as a script with a DataLoader does it; yields the graphs of each step."""
    task = SPECS["zinc-12k"].task
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.optim.lr, weight_decay=recipe.optim.weight_decay)
    size = recipe.train.batch_size
    loader = DataLoader(graphs, size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    model.train()
    while True:
        for batch in loader:
            optimizer.zero_grad(set_to_none=True)
            out = model(batch) if isinstance(model, PlainModel) else model(**model_inputs(batch))
            task.loss(out, batch.y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.optim.clip)
            optimizer.step()
            yield batch.num_graphs


def store_steps(trainer: Trainer) -> Iterator[int]:
    """Training as `gssc train` does it."""
    trainer.model.train()
    position = Position(1, 0, [])
    for graphs in cycle(trainer.batches(1)):
        trainer.step(graphs, position)
        position.step += 1
        yield graphs.numel()


def graphs_per_second(steps: Iterator[int], seconds: float) -> float:
    """Throughput after a step of warm-up."""
    next(steps)
    graphs, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        graphs += next(steps)
    return graphs / (time.perf_counter() - start)


def main(words: list[str] | None = None) -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--seconds", type=float, default=20.0, help="time per measurement")
    parser.add_argument("--data-root", type=Path, default=None, help="folder with zinc-12k; generated otherwise")
    arguments = parser.parse_args(words)
    recipe = find_recipe("zinc-12k")
    name, graphs, flat = molecules(arguments.data_root)
    laplacian, walks = transforms(recipe.spectrum, recipe.model)
    prepared = prepare(graphs, laplacian, walks, progress=False)
    store = build_store(flat, recipe, "graph", torch.device("cpu"), None)
    spec = SPECS["zinc-12k"]
    about = {
        "task": vars(spec.task),
        "node_features": spec.node_features,
        "edge_features": spec.edge_features,
    }

    def model() -> nn.Module:
        torch.manual_seed(SEED)
        return build_model(recipe, about)

    def plain() -> PlainModel:
        assert isinstance(spec.node_features, tuple)
        assert isinstance(spec.edge_features, tuple)
        written = PlainModel(recipe, spec.node_features[0], spec.edge_features[0])
        written.load_state_dict(model().state_dict())
        return written

    # Nothing is timed that does not agree.
    with gate("gssc.bench.training"):
        first = next(iter(DataLoader(prepared[:16], batch_size=16)))
        ours = model().eval()(**store.batch(torch.arange(16)).inputs)
        assert_close(plain().eval()(first), ours, "model against explicit z", 1e-4)

    running = {
        "gssc train": store_steps(Trainer(model(), store, spec.task, recipe, SEED, Processes())),
        "DataLoader": loader_steps(model(), prepared, recipe),
        "DataLoader, explicit z": loader_steps(plain(), prepared, recipe),
        "DataLoader with a worker, explicit z": loader_steps(plain(), prepared, recipe, workers=1),
    }
    all_threads = torch.get_num_threads()
    # Every round times everything once, so that a machine that is slow for a while is slow for all.
    seen: dict[tuple[str, int], list[float]] = {}
    number = max(1, min(ROUNDS, int(arguments.seconds / WINDOW)))
    for _ in range(number):
        for threads in dict.fromkeys((1, all_threads)):
            torch.set_num_threads(threads)
            for variant, steps in running.items():
                seen.setdefault((variant, threads), []).append(graphs_per_second(steps, arguments.seconds / number))
    torch.set_num_threads(all_threads)
    best_threads = {
        variant: max((1, all_threads), key=lambda threads: statistics.median(seen[variant, threads]))
        for variant in running
    }
    rounds = {variant: seen[variant, best_threads[variant]] for variant in running}
    table = Table(
        title=f"training {recipe.name}, batch {recipe.train.batch_size}, {torch.get_num_threads()} threads: {name}"
    )
    for heading in ("variant", "threads", "graphs/s", "gssc train is faster by"):
        table.add_column(heading, justify="right")
    rows: list[dict[str, object]] = []
    for variant, values in rounds.items():
        value = statistics.median(values)
        ratio = statistics.median(ours / theirs for ours, theirs in zip(rounds["gssc train"], values, strict=True))
        table.add_row(variant, str(best_threads[variant]), f"{value:,.0f}", f"{ratio:.2f}")
        spread = np.percentile([1e3 * recipe.train.batch_size / each for each in rounds[variant]], [20, 50, 80])
        percentiles = dict(zip(("p20_ms", "p50_ms", "p80_ms"), (f"{t:.3f}" for t in spread), strict=True))
        row: dict[str, object] = {
            "benchmark": "training",
            "workload": f"{recipe.name} step, {name}",
            "variant": variant,
        }
        row |= percentiles | {"baseline": "gssc train", "ratio": round(ratio, 2)}
        row["note"] = f"{value:.0f} graphs/s with {best_threads[variant]} of {all_threads} threads, the better of both"
        rows.append(row)
    Console().print(table)
    append(arguments.out, rows)


if __name__ == "__main__":
    main()
