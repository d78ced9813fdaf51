"""Datasets that the classes of PyG and OGB download, read and split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch_geometric.datasets import ZINC, GNNBenchmarkDataset, LRGBDataset, MalNetTiny

from gssc.checks import check_installed, fail
from gssc.datasets.places import remove_empty_folders

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


def load_molhiv(root: Path) -> dict[str, Any]:
    """ogbg-molhiv in OGB's scaffold split, each part an InMemoryDataset of its own."""
    check_installed("molhiv", "ogb", "ogb")
    from ogb.graphproppred import PygGraphPropPredDataset
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    remove_empty_folders(root / "ogbg_molhiv")
    # OGB 1.3.6 reads its own processed file with torch.load, which since torch 2.6 wants to be told these names.
    with torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        dataset = PygGraphPropPredDataset("ogbg-molhiv", root=str(root))
        split = dataset.get_idx_split()
    parts = {"train": dataset[split["train"]], "val": dataset[split["valid"]], "test": dataset[split["test"]]}
    return {name: part.copy() for name, part in parts.items()}
