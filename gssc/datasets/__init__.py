"""Datasets by name: generated ones, and those that PyG's and OGB's classes read or download, in official splits."""

from gssc.datasets.cycles import cycle_counting, cycle_counts
from gssc.datasets.flat import FlatGraphs, GraphDataset, flatten
from gssc.datasets.infer import describe
from gssc.datasets.inputs import read_inputs
from gssc.datasets.open import DATASETS, load_dataset, open_dataset
from gssc.datasets.own import open_csv, open_own
from gssc.datasets.pack import load_pack, write_pack
from gssc.datasets.pyg import DatasetError

__all__ = [
    "DATASETS",
    "DatasetError",
    "FlatGraphs",
    "GraphDataset",
    "cycle_counting",
    "cycle_counts",
    "describe",
    "flatten",
    "load_dataset",
    "load_pack",
    "open_csv",
    "open_dataset",
    "open_own",
    "read_inputs",
    "write_pack",
]
