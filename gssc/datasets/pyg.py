"""Datasets that PyG's own classes download, read and split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_geometric.datasets import ZINC, GNNBenchmarkDataset, LRGBDataset, MalNetTiny

# What each class looks for below its root when it does not download, for the error of those who cannot.
RAW_FILES = {
    "zinc-12k": "raw/{train,val,test}.pickle and raw/{train,val,test}.index",
    "zinc-full": "raw/{train,val,test}.pickle and raw/{train,val,test}.index",
    "mnist": "MNIST/raw/MNIST_v2.pt",
    "cifar10": "CIFAR10/raw/CIFAR10_v2.pt",
    "pattern": "PATTERN/raw/PATTERN_v2.pt",
    "cluster": "CLUSTER/raw/CLUSTER_v2.pt",
    "malnet-tiny": "raw/malnet-graphs-tiny and raw/split_info_tiny",
    "voc-sp": "pascalvoc-sp/raw/{train,val,test}.pickle",
    "peptides-func": "peptides-func/raw/{train,val,test}.pt",
    "peptides-struct": "peptides-struct/raw/{train,val,test}.pt",
}
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
    return {split: make(str(root), split) for split in ("train", "val", "test")}
