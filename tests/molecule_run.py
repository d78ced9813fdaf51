"""A training run that the kernels for small graphs take, as small as Triton's interpreter wants it."""

from pathlib import Path

import torch
from molecule_samples import BONDS, VOCABULARY, molecule_graphs

from gssc.config import Recipe
from gssc.datasets import GraphDataset
from gssc.recipes import find_recipe
from gssc.tasks import Task
from gssc.train import RunSettings

SMALL = (
    *("model.layers=1", "model.channels=16", "model.phi_channels=16", "model.rwse_channels=4"),
    *("spectrum.k=4", "spectrum.rwse=3", "optim.warmup_epochs=1", "optim.lr=0.01"),
    *("train.epochs=2", "train.batch_size=2", "train.tensorboard=false"),
)
NO_DROPOUT = ("model.dropout_global=0", "model.dropout_ffn=0")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def molecule_recipe(*overrides: str) -> Recipe:
    """`zinc-12k` with one narrow layer; two epochs of two steps, the second of one graph."""
    return find_recipe("zinc-12k").override([*SMALL, *overrides])


def molecule_dataset(sizes=(5, 9, 3)) -> GraphDataset:
    """Three training, two validation and two test graphs."""
    splits = {"train": molecule_graphs(sizes), "val": molecule_graphs((4, 6), 1), "test": molecule_graphs((7, 2), 2)}
    task = Task("graph", "regression", 1, "mae", shift=0.3, scale=1.7)
    return GraphDataset("molecules", task, [VOCABULARY], [BONDS], splits, {})


def settings(root: Path, **more) -> RunSettings:
    return RunSettings(DEVICE, root / "cache", quiet=True, **more)
