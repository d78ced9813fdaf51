"""Datasets that the classes of PyG and OGB download, read and split, and where their raw files belong.

The classes delete a raw folder in which a file is missing before they download it anew, and OGB's asks questions at the
terminal: both are prevented here (but it may ask before it downloads more than a gigabyte).
"""

import itertools
import re
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import (
    ZINC,
    CityNetwork,
    GNNBenchmarkDataset,
    HeterophilousGraphDataset,
    LRGBDataset,
    MalNetTiny,
)
from torch_geometric.utils import index_to_mask, to_undirected

from gssc.checks import check_installed, fail, first_line
from gssc.datasets.split import NAMES

ZINC_FILES = ("raw/{train,val,test}.pickle", "raw/{train,val,test}.index")
HETEROPHILOUS = ("roman-empire", "amazon-ratings", "minesweeper", "tolokers", "questions")
CITIES = ("city-paris", "city-shanghai", "city-la", "city-london")
OGBN_FILES = "edge,node-feat,node-label,num-edge-list,num-node-list"
# What each class looks for below its root when it does not download; braces stand for each of their words.
RAW_FILES = {
    "zinc-12k": ZINC_FILES,
    "zinc-full": ZINC_FILES,
    **{name.lower(): (f"{name}/raw/{name}_v2.pt",) for name in ("MNIST", "CIFAR10", "PATTERN", "CLUSTER")},
    "malnet-tiny": ("raw/malnet-graphs-tiny", "raw/split_info_tiny/type"),
    "voc-sp": ("pascalvoc-sp/raw/{train,val,test}.pickle",),
    "peptides-func": ("peptides-func/raw/{train,val,test}.pt",),
    "peptides-struct": ("peptides-struct/raw/{train,val,test}.pt",),
    "molhiv": (
        "ogbg_molhiv/RELEASE_v1.txt",
        "ogbg_molhiv/raw/{edge,edge-feat,graph-label,node-feat,num-edge-list,num-node-list}.csv.gz",
        "ogbg_molhiv/split/scaffold/{train,valid,test}.csv.gz",
    ),
    **{name: (f"{name.replace('-', '_')}/raw/{name.replace('-', '_')}.npz",) for name in HETEROPHILOUS},
    **{f"city-{city}": (f"{city}/raw/{city}.tar.gz",) for _, city in (name.split("-") for name in CITIES)},
    "ogbn-arxiv": (
        "ogbn_arxiv/RELEASE_v1.txt",
        f"ogbn_arxiv/raw/{{{OGBN_FILES},node_year}}.csv.gz",
        "ogbn_arxiv/split/time/{train,valid,test}.csv.gz",
    ),
    "ogbn-products": (
        "ogbn_products/RELEASE_v1.txt",
        f"ogbn_products/raw/{{{OGBN_FILES}}}.csv.gz",
        "ogbn_products/split/sales_ranking/{train,valid,test}.csv.gz",
    ),
}
ZINC_GRAPHS = {"zinc-12k": 10_000, "zinc-full": 220_011}
LRGB_NAMES = {"voc-sp": "PascalVOC-SP", "peptides-func": "Peptides-func", "peptides-struct": "Peptides-struct"}


class DatasetError(RuntimeError):
    """A dataset could not be read or downloaded; says which files belong where."""


def load_files(name: str, root: Path) -> dict[str, Any]:
    """The official splits, each an InMemoryDataset, from ``root`` or ``root/name``, or downloaded to ``root/name``.

    Splits of the nodes of one graph are three times the same, whose masks say which nodes are whose.
    """
    place = find_place(name, root)
    missing, present = _missing(name, place), _present(name, place)
    if missing and present:
        raise DatasetError(
            f"{name}: {missing[0]} is missing below {place}, where {present[0]} is; "
            "put it there, or remove what is there to have all downloaded"
        )
    try:
        if name in (*HETEROPHILOUS, *CITIES) or name.startswith("ogbn-"):
            graph = _load_ogbn(name, place) if name.startswith("ogbn-") else _class(name)(str(place), "")[0]
            one = [_one_graph(graph)]
            parts = dict.fromkeys(NAMES, one)
        elif name == "molhiv":
            parts = _load_molhiv(place)
        else:
            parts = {split: _class(name)(str(place), split) for split in NAMES}
    except ValueError:
        raise
    except Exception as error:  # whatever a download or an unpickling may raise
        reason = first_line(error)
        files = " and ".join(RAW_FILES[name])
        raise DatasetError(f"{name}: could not be read or downloaded ({reason}); put {files} below {place}") from error
    # Both variants of ZINC read files of the same names, so that a wrong folder would go unnoticed.
    if (graphs := len(parts["train"])) != ZINC_GRAPHS.get(name, graphs):
        fail(f"{name} in {place}", f"{ZINC_GRAPHS[name]:,} training graphs", f"{graphs:,}")
    return parts


def find_place(name: str, root: Path) -> Path:
    """``root/name`` or ``root``, whichever holds all raw files; ``root/name`` where neither does."""
    return root if _missing(name, root / name) and not _missing(name, root) else root / name


def raw_paths(name: str) -> list[str]:
    """The raw files of a dataset, one by one."""
    words = ([part.split(",") for part in re.split(r"[{}]", pattern)] for pattern in RAW_FILES[name])
    return ["".join(chosen) for parts in words for chosen in itertools.product(*parts)]


def _missing(name: str, place: Path) -> list[str]:
    return [path for path in raw_paths(name) if not (place / path).exists()]


def _present(name: str, place: Path) -> list[str]:
    """Raw files, or files in the folder where they belong, that are there: what a download would delete."""
    folders = {(place / path).parent for path in raw_paths(name)}
    files = [file for folder in folders if folder.is_dir() for file in folder.iterdir()]
    return sorted(str(file.relative_to(place)) for file in files if not file.is_dir() or any(file.iterdir()))


def _class(name: str) -> Callable[[str, str], Any]:
    """The dataset class as a function of root and split."""
    if name in ZINC_GRAPHS:
        return lambda root, split: ZINC(root, subset=name == "zinc-12k", split=split)
    if name in LRGB_NAMES:
        return lambda root, split: LRGBDataset(root, LRGB_NAMES[name], split=split)
    if name in HETEROPHILOUS:
        return lambda root, split: HeterophilousGraphDataset(root, name)
    if name in CITIES:
        return lambda root, split: City(root, name.removeprefix("city-"))
    if name == "malnet-tiny":
        return lambda root, split: MalNetTiny(root, split=split)
    return lambda root, split: GNNBenchmarkDataset(root, name.upper(), split=split)


class City(CityNetwork):
    """PyG's class, which asks for a file that its archive does not hold, and so would download anew every time."""

    @property
    def raw_file_names(self) -> str:
        return f"{self.name}.tar.gz"

    def process(self) -> None:
        self.download_path = self.raw_paths[0]
        super().process()


def _one_graph(graph: Data) -> Data:
    """A graph with both directions of every edge, and nothing but what is read of it."""
    names = ("x", "y", *(f"{split}_mask" for split in NAMES))
    edges = to_undirected(graph.edge_index, num_nodes=graph.num_nodes)
    return Data(edge_index=edges, **{name: graph[name] for name in names})


def _load_ogbn(name: str, place: Path) -> Data:
    dataset, split = _load_ogb(name, "nodeproppred", "PygNodePropPredDataset", place)
    graph = dataset[0]
    for part in NAMES:
        graph[f"{part}_mask"] = index_to_mask(split["valid" if part == "val" else part], graph.num_nodes)
    return graph


def _load_molhiv(place: Path) -> dict[str, Any]:
    """ogbg-molhiv in OGB's scaffold split."""
    dataset, split = _load_ogb("ogbg-molhiv", "graphproppred", "PygGraphPropPredDataset", place)
    return {name: dataset[split["valid" if name == "val" else name]].copy() for name in NAMES}


def _load_ogb(name: str, kind: str, cls: str, place: Path) -> tuple[Any, dict[str, Any]]:
    """A dataset of OGB and the rows of its split."""
    check_installed(name.removeprefix("ogbg-"), "ogb")
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    remove_empty_folders(place / name.replace("-", "_"))
    # OGB 1.3.6 reads its own processed file with torch.load, which since torch 2.6 wants to be told these names.
    with torch.serialization.safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage]):
        dataset = getattr(import_module(f"ogb.{kind}"), cls)(name, root=str(place))
        return dataset, dataset.get_idx_split()


def remove_empty_folders(folder: Path) -> None:
    """Remove a folder if there is no file in it, at any depth: what a failed download leaves."""
    if all(path.is_dir() and not path.is_symlink() for path in folder.rglob("*")):
        shutil.rmtree(folder, ignore_errors=True)
