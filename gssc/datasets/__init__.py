"""Datasets by name: generated ones, and those that PyG's and OGB's classes read or download, in official splits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_geometric.data import Data, InMemoryDataset

from gssc.checks import check_choice, fail
from gssc.datasets import molhiv as _molhiv
from gssc.datasets import pyg as _pyg
from gssc.datasets import sbm as _sbm
from gssc.datasets.cycles import load_cycles
from gssc.datasets.flat import FlatGraphs, GraphDataset, flatten
from gssc.datasets.infer import describe
from gssc.datasets.inputs import read_inputs
from gssc.datasets.molecules import open_csv
from gssc.datasets.open import open_dataset
from gssc.datasets.own import open_own
from gssc.datasets.pack import load_pack, write_pack
from gssc.datasets.places import RAW_FILES, find_place, found, missing
from gssc.datasets.synthetic import cycle_counting, cycle_counts

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

CYCLES = {f"cycles-{length}": length for length in (3, 4, 5, 6)}
DATASETS = (*CYCLES, *RAW_FILES)


class DatasetError(RuntimeError):
    """A dataset could not be read or downloaded; says which files belong where."""


def load_dataset(
    name: str, root: str | Path, seed: int = 0, *, generate: bool = False
) -> dict[str, InMemoryDataset | Sequence[Data]]:
    """The parts ``train``, ``val`` and ``test`` of a dataset.

    Args:
        name: One of ``DATASETS``.
        root: Folder of raw data. A class finds its files in ``root`` itself or in ``root/name``; where neither has
            them, it downloads to ``root/name``.
        seed: Seed of generated data.
        generate: Generate the graphs even where their files are in place; for datasets that are random models.

    Raises:
        DatasetError: the files are not there and cannot be downloaded, or are damaged.
    """
    check_choice("dataset", name, DATASETS)
    root = Path(root).expanduser()
    if name in CYCLES:
        return dict(load_cycles(CYCLES[name], root, seed, generate=generate))
    if generate and name in _sbm.GRAPHS:
        return dict(_sbm.generate_sbm(name, seed))
    if generate:
        fail("generate", f"false for {name} (only random models can be generated)", "true")
    place = find_place(name, root)
    lacking, there = missing(name, place), found(name, place)
    if lacking and there:
        raise DatasetError(
            f"{name}: {lacking[0]} is missing below {place}, where {there[0]} is; "
            "put it there, or remove what is there to have all downloaded"
        )
    try:
        parts: dict[str, Any] = _molhiv.load_molhiv(place) if name == "molhiv" else _pyg.load_pyg(name, place)
    except ValueError:
        raise
    except Exception as error:  # whatever a download or an unpickling may raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DatasetError(
            f"{name}: could not be read or downloaded ({reason}); put {RAW_FILES[name]} below {place}"
        ) from error
    return parts
