"""Datasets that PyG's own classes download, read and split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_geometric.datasets import ZINC, GNNBenchmarkDataset, LRGBDataset, MalNetTiny

from gssc.checks import fail

ZINC_GRAPHS = {"zinc-12k": 10_000, "zinc-full": 220_011}
LRGB_NAMES = {"voc-sp": "PascalVOC-SP", "peptides-func": "Peptides-func", "peptides-struct": "Peptides-struct"}


def _class(name: str) -> Callable[[str, str], Any]:
    """The dataset class as a function of root and split."""
    if name in ("zinc-12k", "zinc-full"):
        return lambda root, split: ZINC(root, subset=name == "zinc-12k", split=split)
    if name in LRGB_NAMES:
        return lambda root, split: LRGBDataset(root, LRGB_NAMES[name], split=split)
    if name == "malnet-tiny":
        return lambda root, split: MalNetTiny(root, split=split)
    return lambda root, split: GNNBenchmarkDataset(root, name.upper(), split=split)


def load_pyg(name: str, root: Path) -> dict[str, Any]:
    """The official splits, each an InMemoryDataset."""
    make = _class(name)
    parts = {split: make(str(root), split) for split in ("train", "val", "test")}
    # Both variants of ZINC read files of the same names, so that a wrong folder would go unnoticed.
    graphs = ZINC_GRAPHS.get(name, len(parts["train"]))
    if len(parts["train"]) != graphs:
        fail(f"{name} in {root}", f"{graphs:,} training graphs", f"{len(parts['train']):,}")
    return parts
