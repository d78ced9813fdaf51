"""A loop of one's own over PyG's DataLoader, launched and replayed, against the steps of our trainer.

    python -m benchmarks.replayed_loop [model.local=gatedgcn model.layers=4 model.channels=96 ...]

The zinc-12k recipe (with overrides) on 2,000 generated molecules in batches of 32. *launched* is the ordinary loop,
*replayed* the same with ``gssc.replayed``: with a loader that collates in the same process, and with batches that are
collated already, which is what the step itself takes. *gssc train* is our trainer, with the kernels for small graphs
where they take the recipe, and with replayed steps. Milliseconds per step, medians over epochs; without a GPU all but
the launched loop would be the same.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import gssc
from benchmarks.graphs import zinc_like
from gssc import model_inputs, molecules
from gssc.config import Recipe
from gssc.datasets import FlatGraphs, GraphDataset
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.train import GraphStore, build_model
from gssc.train.build import build_store
from gssc.train.processes import Processes
from gssc.train.replayed import ReplayedTrainer
from gssc.train.step import Position, Trainer

SPEC = SPECS["zinc-12k"]
ABOUT = {"task": vars(SPEC.task), "node_features": SPEC.node_features, "edge_features": SPEC.edge_features}


def pyg_graphs(flat: FlatGraphs, store: GraphStore) -> list[Data]:
    """The graphs of a store, with their spectra, as PyG data on the CPU."""
    graphs = []
    tensors = {name: tensor.cpu() for name, tensor in {**store.of_nodes, **store.of_edges, **store.of_graphs}.items()}
    ends = store.edge_index.t().cpu().long()
    for number in range(flat.num_graphs):
        nodes = slice(int(store.ptr[number]), int(store.ptr[number + 1]))
        edges = slice(int(store.edge_ptr[number]), int(store.edge_ptr[number + 1]))
        rows = dict.fromkeys(store.of_nodes, nodes) | dict.fromkeys(store.of_edges, edges)
        rows |= dict.fromkeys(store.of_graphs, slice(number, number + 1))
        graph = Data(edge_index=ends[:, edges], y=store.y[number : number + 1].cpu())
        graph.num_nodes = nodes.stop - nodes.start
        for name, tensor in tensors.items():
            graph[name] = tensor[rows[name]]
        graphs.append(graph)
    return graphs


def own_step(model: nn.Module, optimizer: torch.optim.Optimizer, recipe: Recipe) -> Callable[[Any], torch.Tensor]:
    """A training step as one writes it."""

    def step(batch: Any) -> torch.Tensor:
        optimizer.zero_grad()
        out = model(**model_inputs(batch))
        loss: torch.Tensor = nn.functional.l1_loss(out[: len(batch.y)], batch.y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.optim.clip)
        optimizer.step()
        return loss.detach()

    return step


def milliseconds(epoch: Callable[[], int], device: torch.device, epochs: int) -> float:
    """Per step, of an epoch that returns how many it has taken; the first two are not counted."""
    times = []
    for _ in range(epochs + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        steps = epoch()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / steps)
    return 1e3 * statistics.median(times[2:])


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("overrides", nargs="*", help="changes to the recipe, section.key=value")
    parser.add_argument("--graphs", type=int, default=2_000)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe, flat = find_recipe("zinc-12k").override(options.overrides), zinc_like(options.graphs, 0)
    store = build_store(flat, recipe, "graph", device, cache=False)
    size = recipe.train.batch_size
    loader = DataLoader(pyg_graphs(flat, store), size, shuffle=True)
    collated = list(loader)

    def new_model() -> nn.Module:
        torch.manual_seed(0)
        return build_model(recipe, ABOUT).to(device).train()

    def own_epoch(step: Callable[[Any], Any], batches: Iterable[Any]) -> Callable[[], int]:
        return lambda: len([step(batch) for batch in batches])

    found: dict[str, float] = {}
    for name in ("launched", "replayed"):
        model = new_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-5)
        step = own_step(model, optimizer, recipe)

        def launched(batch: Any, step: Callable[[Any], Any] = step) -> Any:
            return step(batch.to(device))

        wrapped: Callable[[Any], Any] = gssc.replayed(step, model, optimizer) if name == "replayed" else launched
        found[f"{name}, DataLoader"] = milliseconds(own_epoch(wrapped, loader), device, options.epochs)
        found[f"{name}, collated before"] = milliseconds(own_epoch(wrapped, collated), device, options.epochs)

    def trainer_epoch(trainer: Trainer) -> Callable[[], int]:
        return lambda: int(trainer.run_epoch(Position(1, 0, []), lambda: False)) * len(trainer.batches(1))

    arguments = store, SPEC.task, recipe, 0, Processes()
    found["gssc train, replayed"] = milliseconds(
        trainer_epoch(ReplayedTrainer(new_model(), *arguments)), device, options.epochs
    )
    splits = dict.fromkeys(("train", "val"), flat)
    dataset = GraphDataset("zinc-12k", SPEC.task, SPEC.node_features, SPEC.edge_features, splits, {})
    if molecules.why_not(recipe, dataset, device, Processes()) is None:
        group = molecules.MoleculeGroup([Trainer(new_model(), *arguments)])

        def group_epoch() -> int:
            return int(group.run_epoch([Position(1, 0, [])], lambda: False)) * group.steps

        found["gssc train, kernels"] = milliseconds(group_epoch, device, options.epochs)
    reference = found["gssc train, replayed"]
    print(f"{device.type}, {options.graphs:,} molecules, batches of {size}: ms per step, ratio to gssc train, replayed")
    for name, time_ in found.items():
        print(f"{name:28s} {time_:9.3f}  {time_ / reference:6.2f}")


if __name__ == "__main__":
    main()
