"""Where the raw files of each dataset belong, and whether they are there.

PyG's and OGB's classes delete a raw folder in which a file is missing before they download it anew, and OGB's asks
questions at the terminal: both are prevented here.
"""

from pathlib import Path

SPLITS = ("train", "val", "test")
ZINC = tuple(f"raw/{split}.{ending}" for ending in ("pickle", "index") for split in SPLITS)
OGB_RAW = ("edge", "edge-feat", "graph-label", "node-feat", "num-edge-list", "num-node-list")
# What each class looks for below its root when it does not download.
RAW_PATHS = {
    "zinc-12k": ZINC,
    "zinc-full": ZINC,
    "mnist": ("MNIST/raw/MNIST_v2.pt",),
    "cifar10": ("CIFAR10/raw/CIFAR10_v2.pt",),
    "pattern": ("PATTERN/raw/PATTERN_v2.pt",),
    "cluster": ("CLUSTER/raw/CLUSTER_v2.pt",),
    "malnet-tiny": ("raw/malnet-graphs-tiny", "raw/split_info_tiny/type"),
    "voc-sp": tuple(f"pascalvoc-sp/raw/{split}.pickle" for split in SPLITS),
    "peptides-func": tuple(f"peptides-func/raw/{split}.pt" for split in SPLITS),
    "peptides-struct": tuple(f"peptides-struct/raw/{split}.pt" for split in SPLITS),
    "molhiv": (
        "ogbg_molhiv/RELEASE_v1.txt",
        *(f"ogbg_molhiv/raw/{part}.csv.gz" for part in OGB_RAW),
        *(f"ogbg_molhiv/split/scaffold/{split}.csv.gz" for split in ("train", "valid", "test")),
    ),
}
# The same for people.
RAW_FILES = {
    **{name: " and ".join(paths) for name, paths in RAW_PATHS.items() if len(paths) < 3},
    **dict.fromkeys(("zinc-12k", "zinc-full"), "raw/{train,val,test}.pickle and raw/{train,val,test}.index"),
    "voc-sp": "pascalvoc-sp/raw/{train,val,test}.pickle",
    "peptides-func": "peptides-func/raw/{train,val,test}.pt",
    "peptides-struct": "peptides-struct/raw/{train,val,test}.pt",
    "molhiv": "OGB's archive, unpacked as ogbg_molhiv/{RELEASE_v1.txt,raw,split},",
}


def find_place(name: str, root: Path) -> Path:
    """``root/name`` or ``root``, whichever holds all raw files; ``root/name`` where neither does."""
    places = (root / name, root)
    return next((place for place in places if not missing(name, place)), places[0])


def missing(name: str, place: Path) -> list[str]:
    """Raw files that are not there."""
    return [path for path in RAW_PATHS[name] if not (place / path).exists()]


def present(name: str, place: Path) -> list[str]:
    """Raw files, or files in the folder where they belong, that are there: what a download would delete."""
    folders = {(place / path).parent for path in RAW_PATHS[name]}
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
