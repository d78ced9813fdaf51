"""Training steps of the zinc-12k recipe: our store and layer against PyG's DataLoader and explicit z tensors.

    python -m benchmarks.training --out benchmarks/results.csv [--data-root DIR]

All sides train the same model: the same parameters, function, loss, clipping and optimiser, on the same graphs with
spectra at hand. They differ in how it is computed:

- *gssc train*: batches from the store and the model as ``gssc train`` runs them on a CPU.
- *DataLoader*: ``gssc.GSSC`` in a script with PyG's ``DataLoader`` and ``torch.optim.AdamW`` with its defaults.
- *DataLoader, explicit z*: such a script, with the model as one writes it from the paper (``peers.py``).
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

from benchmarks.graphs import zinc_like
from benchmarks.harness import append, gate
from benchmarks.peers import PlainModel
from gssc import GSSC, model_inputs, prepare
from gssc.config import Recipe
from gssc.datasets import FlatGraphs, flatten, open_dataset
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.testing import assert_close
from gssc.train import GraphStore, build_model
from gssc.train.build import build_store, transforms
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer

SPEC = SPECS["zinc-12k"]
ABOUT = {"task": vars(SPEC.task), "node_features": SPEC.node_features, "edge_features": SPEC.edge_features}
GRAPHS, SEED = 2_000, 0
ROUNDS, WINDOW = 9, 2.0  # at most so many rounds, and seconds of a measurement in one at least


def molecules(root: Path | None) -> tuple[str, list[Data], FlatGraphs]:
    """Training graphs, as PyG data and as flat tensors."""
    kind = "generated molecules" if root is None else "zinc-12k"
    flat = zinc_like(GRAPHS, SEED) if root is None else open_dataset("zinc-12k", root).splits["train"]
    assert flat.x is not None
    assert flat.edge_attr is not None
    graphs = []
    for g in range(min(GRAPHS, flat.num_graphs)):
        nodes, edges = slice(*flat.ptr[g : g + 2].tolist()), slice(*flat.edge_ptr[g : g + 2].tolist())
        edge_index, edge_attr = flat.edge_index[:, edges], flat.edge_attr[edges]
        graphs.append(Data(x=flat.x[nodes], edge_index=edge_index, edge_attr=edge_attr, y=flat.y[g : g + 1]))
    return f"{kind}, {GRAPHS} graphs", graphs, flatten(graphs, SPEC.task)


def loader_steps(model: nn.Module, graphs: list[Data], recipe: Recipe, workers: int = 0) -> Iterator[int]:
    """Training as a script with a DataLoader does it; yields the graphs of each step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.optim.lr, weight_decay=recipe.optim.weight_decay)
    size = recipe.train.batch_size
    loader = DataLoader(graphs, size, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    model.train()
    while True:
        for batch in loader:
            optimizer.zero_grad(set_to_none=True)
            out = model(batch) if isinstance(model, PlainModel) else model(**model_inputs(batch))
            SPEC.task.loss(out, batch.y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), recipe.optim.clip)
            optimizer.step()
            yield batch.num_graphs


def store_steps(model: GSSC, store: GraphStore, recipe: Recipe) -> Iterator[int]:
    """Training as `gssc train` does it; yields the graphs of each step."""
    trainer = Trainer(model, store, SPEC.task, recipe, SEED, Processes())
    model.train()
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


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    parser.add_argument("--seconds", type=float, default=20.0, help="time per measurement")
    parser.add_argument("--data-root", type=Path, default=None, help="folder with zinc-12k; generated otherwise")
    options = parser.parse_args(arguments)
    recipe = find_recipe("zinc-12k")
    name, graphs, flat = molecules(options.data_root)
    prepared = prepare(graphs, *transforms(recipe.spectrum, recipe.model), progress=False)
    store = build_store(flat, recipe, "graph", torch.device("cpu"), None)

    def model() -> GSSC:
        torch.manual_seed(SEED)
        return build_model(recipe, ABOUT)

    def plain() -> PlainModel:
        assert isinstance(SPEC.node_features, tuple)
        assert isinstance(SPEC.edge_features, tuple)
        written = PlainModel(recipe, SPEC.node_features[0], SPEC.edge_features[0])
        written.load_state_dict(model().state_dict())
        return written

    # Nothing is timed that does not agree.
    with gate("benchmarks.training"):
        batch = next(iter(DataLoader(prepared[:16], batch_size=16)))
        ours = model().eval()(**store.batch(torch.arange(16)).inputs)
        assert_close(plain().eval()(batch), ours, "model against explicit z", 1e-4)

    running = {
        "gssc train": store_steps(model(), store, recipe),
        "DataLoader": loader_steps(model(), prepared, recipe),
        "DataLoader, explicit z": loader_steps(plain(), prepared, recipe),
        "DataLoader with a worker, explicit z": loader_steps(plain(), prepared, recipe, workers=1),
    }
    all_threads = torch.get_num_threads()
    # Every round times everything once, so that a machine that is slow for a while is slow for all.
    seen: dict[tuple[str, int], list[float]] = {}
    number = max(1, min(ROUNDS, int(options.seconds / WINDOW)))
    for _ in range(number):
        for threads in dict.fromkeys((1, all_threads)):
            torch.set_num_threads(threads)
            for variant, steps in running.items():
                seen.setdefault((variant, threads), []).append(graphs_per_second(steps, options.seconds / number))
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
        row: dict[str, object] = {"benchmark": "training", "workload": f"{recipe.name} step, {name}"}
        row |= {"variant": variant} | percentiles | {"baseline": "gssc train", "ratio": round(ratio, 2)}
        row["note"] = f"{value:.0f} graphs/s with {best_threads[variant]} of {all_threads} threads, the better of both"
        rows.append(row)
    Console().print(table)
    append(options.out, rows)


if __name__ == "__main__":
    main()
