"""Folds by scaffold inside the training molecules of molhiv, as packs: settings are chosen without the official sets.

    python -m tools.scaffold_folds --data-root data --out folds
    gssc train molhiv --pack folds/molhiv-0.safetensors --out runs/folds/as-is/0

The 81 active molecules of the official validation set cannot tell settings apart; the training set has 1,232. Its
scaffolds are dealt to `FOLDS` folds of about equal size. Pack r has fold 2 r to be tested on, fold 2 r + 1 to select
epochs, and all others to train on, so that over the packs half of the training molecules are tested once, by models
that have seen none of their scaffolds.
"""

import argparse
import csv
import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from gssc.datasets import open_dataset, write_pack
from gssc.datasets.flat import GraphDataset, select
from gssc.datasets.pyg import find_place
from gssc.datasets.smiles import read_molecules

FOLDS = 8


def deal(scaffolds: Sequence[str], folds: int, seed: int = 0) -> list[np.ndarray]:
    """Numbers of the molecules of each fold, ascending: those of one scaffold together, each to the smallest fold."""
    groups: dict[str, list[int]] = {}
    for number, scaffold in enumerate(scaffolds):
        groups.setdefault(scaffold, []).append(number)
    members = list(groups.values())
    dealt: list[list[int]] = [[] for _ in range(folds)]
    order = np.random.default_rng(seed).permutation(len(members))
    for group in sorted((members[number] for number in order), key=len, reverse=True):
        min(dealt, key=len).extend(group)
    return [np.sort(np.array(fold, dtype=np.int64)) for fold in dealt]


def rotated(dataset: GraphDataset, folds: Sequence[np.ndarray], rotation: int) -> GraphDataset:
    """The training molecules with these folds in the places of all three parts; the official others are left out."""
    test, val = 2 * rotation, 2 * rotation + 1
    train = np.sort(np.concatenate([fold for number, fold in enumerate(folds) if number not in (test, val)]))
    parts = {"train": train, "val": folds[val], "test": folds[test]}
    flat = dataset.splits["train"]
    return replace(dataset, splits={name: select(flat, torch.from_numpy(p), "graph") for name, p in parts.items()})


def training_scaffolds(root: Path) -> list[str]:
    """Of every training molecule, in the order of the dataset; what RDKit cannot read is a scaffold of its own."""
    place = find_place("molhiv", root) / "ogbg_molhiv"
    with gzip.open(place / "split" / "scaffold" / "train.csv.gz", "rt") as file:
        rows = [int(line) for line in file]
    with gzip.open(place / "mapping" / "mol.csv.gz", "rt") as file:
        smiles = [row["smiles"] for row in csv.DictReader(file)]
    found = read_molecules(
        [smiles[row] for row in rows], [f"row {row}" for row in rows], scaffolds=True, skip_invalid=True
    )
    scaffolds = [f"alone {number}" for number in range(len(rows))]
    for number, scaffold in zip(found.rows, found.scaffolds, strict=True):
        scaffolds[number] = scaffold
    return scaffolds


def main(arguments: list[str] | None = None) -> None:
    """Write the packs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path("folds"))
    options = parser.parse_args(arguments)
    dataset = open_dataset("molhiv", options.data_root)
    folds = deal(training_scaffolds(options.data_root), FOLDS)
    options.out.mkdir(parents=True, exist_ok=True)
    for rotation in range(FOLDS // 2):
        part = rotated(dataset, folds, rotation)
        path = options.out / f"molhiv-{rotation}.safetensors"
        write_pack(part, path)
        said = (f"{len(flat):,} {name} ({int(flat.y.nan_to_num().sum())} active)" for name, flat in part.splits.items())
        print(f"{path}: {', '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
