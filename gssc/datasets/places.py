"""Where the raw files of each dataset belong, and whether they are there.

PyG's and OGB's classes delete a raw folder in which a file is missing before they download it anew, and OGB's asks
questions at the terminal: both are prevented here.
"""

import itertools
import re
from pathlib import Path

ZINC = ("raw/{train,val,test}.pickle", "raw/{train,val,test}.index")
# What each class looks for below its root when it does not download; braces stand for each of their words.
RAW_FILES = {
    "zinc-12k": ZINC,
    "zinc-full": ZINC,
    "mnist": ("MNIST/raw/MNIST_v2.pt",),
    "cifar10": ("CIFAR10/raw/CIFAR10_v2.pt",),
    "pattern": ("PATTERN/raw/PATTERN_v2.pt",),
    "cluster": ("CLUSTER/raw/CLUSTER_v2.pt",),
    "malnet-tiny": ("raw/malnet-graphs-tiny", "raw/split_info_tiny/type"),
    "voc-sp": ("pascalvoc-sp/raw/{train,val,test}.pickle",),
    "peptides-func": ("peptides-func/raw/{train,val,test}.pt",),
    "peptides-struct": ("peptides-struct/raw/{train,val,test}.pt",),
    "molhiv": (
        "ogbg_molhiv/RELEASE_v1.txt",
        "ogbg_molhiv/raw/{edge,edge-feat,graph-label,node-feat,num-edge-list,num-node-list}.csv.gz",
        "ogbg_molhiv/split/scaffold/{train,valid,test}.csv.gz",
    ),
}


def raw_paths(name: str) -> list[str]:
    """The raw files of a dataset, one by one."""
    paths = []
    for pattern in RAW_FILES[name]:
        words = [part.split(",") for part in re.split(r"[{}]", pattern)]
        paths += ["".join(chosen) for chosen in itertools.product(*words)]
    return paths


def find_place(name: str, root: Path) -> Path:
    """``root/name`` or ``root``, whichever holds all raw files; ``root/name`` where neither does."""
    places = (root / name, root)
    return next((place for place in places if not missing(name, place)), places[0])


def missing(name: str, place: Path) -> list[str]:
    """Raw files that are not there."""
    return [path for path in raw_paths(name) if not (place / path).exists()]


def present(name: str, place: Path) -> list[str]:
    """Raw files, or files in the folder where they belong, that are there: what a download would delete."""
    folders = {(place / path).parent for path in raw_paths(name)}
    return sorted(
        str(file.relative_to(place))
        for folder in folders
        if folder.is_dir()
        for file in folder.iterdir()
        if not file.is_dir() or any(file.iterdir())
    )


def remove_empty_folders(folder: Path) -> None:
    """Remove a folder if there is no file in it, at any depth: what a failed download leaves."""
    inside = sorted(folder.rglob("*"), reverse=True)
    if folder.is_dir() and all(path.is_dir() for path in inside):
        for path in (*inside, folder):
            path.rmdir()
