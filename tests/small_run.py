"""A training run that takes a fraction of a second, and what must be the same of two equal runs."""

import json
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from gssc.config import Recipe
from gssc.datasets import GraphDataset, open_dataset
from gssc.datasets.cycles import cycle_counting
from gssc.recipes import find_recipe
from gssc.train import RunSettings, train

SMALL = (
    "model.layers=1",
    "model.channels=8",
    "model.phi=deepset",
    "model.selective=false",
    "model.norm=batch",
    "model.dropout_local=0.3",
    "model.dropout_global=0.3",
    "model.degree_scaling=false",
    "spectrum.k=4",
    "spectrum.operator=sym",
    "optim.lr=0.001",
    "optim.warmup_epochs=1",
    "train.epochs=4",
    "train.batch_size=4",
    "train.ema=0",
    "train.eval_every=1",
    "train.tensorboard=false",
)
# What differs between equal runs.
CLOCKED = ("seconds", "graphs_per_second")


def small_recipe(*overrides: str) -> Recipe:
    """`cycles-3`, with dropout and BatchNorm, as small as it gets; overrides as on the command line."""
    return find_recipe("cycles-3").override([*SMALL, *overrides])


def small_dataset(root: Path) -> GraphDataset:
    """12 training, 4 validation and 4 test graphs, read from a file as the published ones are."""
    write_cycles(root)
    return open_dataset("cycles-3", root)


def write_cycles(root: Path) -> None:
    """``count_cycle.npz`` with 20 graphs."""
    path = root / "cycles" / "raw" / "count_cycle.npz"
    if path.exists():
        return
    path.parent.mkdir(parents=True)
    graphs = cycle_counting(20, 0)
    ends = [_once(graph) for graph in graphs]
    np.savez(
        path,
        n_nodes=[graph.num_nodes for graph in graphs],
        n_edges=[pairs.shape[1] for pairs in ends],
        edge_u=np.concatenate([pairs[0] for pairs in ends]),
        edge_v=np.concatenate([pairs[1] for pairs in ends]),
        y=np.concatenate([graph.y.numpy() for graph in graphs]),
        train_idx=np.arange(12),
        val_idx=np.arange(12, 16),
        test_idx=np.arange(16, 20),
    )


def _once(graph: Data) -> np.ndarray:
    edges = graph.edge_index.numpy()
    return edges[:, edges[0] < edges[1]]


def run_small(root: Path, out: str, *overrides: str, seed: int = 0, **settings):
    """Train into ``root/out`` with a cache in ``root``; returns the folder and the summary."""
    where = RunSettings(torch.device("cpu"), root / "cache", quiet=True, **settings)
    summary = train(small_recipe(*overrides), small_dataset(root), seed, root / out, where)
    return root / out, summary


def timeless(record: dict) -> dict:
    """All of a record that the clock does not decide."""
    return {key: value for key, value in record.items() if not any(word in key for word in CLOCKED)}


def outcome(folder: Path) -> dict:
    """All that equal runs must agree on, to the last bit."""
    names = ("predictions.safetensors", "checkpoints/last.safetensors", "config.yaml")
    return {
        **{name: (folder / name).read_bytes() for name in names},
        **{path.name: path.read_bytes() for path in folder.glob("model*.safetensors")},
        "metrics": [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        "summary": timeless(json.loads((folder / "summary.json").read_text())),
        "files": sorted(str(path.relative_to(folder)) for path in folder.rglob("*")),
    }
