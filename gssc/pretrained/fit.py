"""From Python in three lines: `gssc.fit` is `gssc train --data` and `--csv` for graphs in memory."""

import csv
import json
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, Dataset

from gssc.checks import check_device, fail
from gssc.datasets.pairs import marked_parts
from gssc.pretrained.find import find_start, open_model
from gssc.recipes import own_recipe
from gssc.spectra.packed import edges_of
from gssc.train import LoadedRun, RunSettings
from gssc.train.display import plain_console
from gssc.train.open_data import open_for, suited
from gssc.train.seeds import seed_folders, train_seeds, write_aggregate


def fit(
    graphs: Data | Dataset | Sequence[Data] | Sequence[Sequence[Data]] | Sequence[str],
    targets: Tensor | Sequence[float | None] | Mapping[str, Sequence[float | None]] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    split: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    device: str | torch.device | None = None,
    quiet: bool = False,
) -> LoadedRun:
    """A model for your own data: task, features and split are found in them, see `gssc.datasets.open_own`.

    It is what `gssc train --data` makes of a file with these graphs, or `--csv` of the molecules: the same recipe, the
    same trainer and files. The result has ``predict`` for new graphs, ``save``, ``summary`` (scores) and the ``model``.

    Args:
        graphs: PyG graphs with ``y``: a list or a dataset; one with masks of its nodes; training, validation and test
            part as three graphs or lists, such as ``RandomLinkSplit`` makes; or SMILES, which need RDKit.
        targets: Of SMILES: a number each, or several as columns by name; ``None`` and NaN are unknown.
        settings: Keys of the recipe, such as ``{"train.epochs": 50, "model.local": "gine"}``.
        split: ``"random"`` or ``"scaffold"``, where the data bring none.
        seed: Of the training.
        out: Folder of the run, which must be new; by default one that lasts as long as the result.
        device: Where to train; a GPU where there is one.
        quiet: Show nothing.

    Example:
        >>> import gssc
        >>> from gssc.datasets import cycle_counting
        >>> small = {"train.epochs": 1, "model.channels": 32, "model.layers": 1}
        >>> model = gssc.fit(cycle_counting(20), settings=small, quiet=True)
        >>> model.predict(cycle_counting(2, seed=1)).shape[1]
        1
    """
    place = check_device("device", device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if out is not None and Path(out).exists():
        fail("out", "a new folder", out)
    folder = Path(tempfile.mkdtemp(prefix="gssc-") if out is None else out)
    try:
        file, columns = _write(graphs, targets, folder)
        asked = [f"{key}={v if isinstance(v, str) else json.dumps(v)}" for key, v in (settings or {}).items()]
        recipe = own_recipe(file, split=split, target_columns=columns).override(asked)
        dataset = open_for(recipe, folder, quiet=quiet)
        recipe = suited(recipe, dataset, asked, plain_console(quiet).print)
        places = seed_folders(folder, [seed])
        results = train_seeds(recipe, dataset, places, RunSettings(place, quiet=quiet, find_start=find_start))
        if write_aggregate(folder, results) is None:
            raise KeyboardInterrupt  # which the trainer takes for a wish to stop after the step at hand
        run = open_model(places[seed], device=place)
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if out is None:
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def _write(graphs: Any, targets: Any, folder: Path) -> tuple[Path, str | None]:
    """The file that a command would be given, and the headings of its targets."""
    one = isinstance(graphs, Data)
    graphs = marked_parts(graphs)
    several = hasattr(graphs, "__getitem__") and not isinstance(graphs, str | Mapping)
    items = [graphs] if one else list(graphs) if several else []
    molecules = bool(items) and isinstance(items[0], str)
    other = next((item for item in items if not isinstance(item, str if molecules else Data)), None)
    if not items or other is not None:
        got = type(graphs if other is None else other).__name__
        fail("graphs", "PyG graphs, or a list of SMILES", f"an empty {got}" if several and not items else got)
    if molecules == (targets is None):
        expected = "a number for each of the SMILES" if molecules else "none: y of the graphs"
        fail("targets", expected, "none" if molecules else "some")
    folder.mkdir(parents=True, exist_ok=True)
    if not molecules:
        plain = [_plain(item, f"graph {number}") for number, item in enumerate(items)]
        torch.save(plain[0] if one else plain, folder / "graphs.pt")
        return folder / "graphs.pt", None
    named = targets if isinstance(targets, Mapping) else {"target": targets}
    columns = {str(name): list(column) for name, column in named.items()}
    for name, column in columns.items():
        if len(column) != len(items):
            fail(f"targets, {name}", f"{len(items)} numbers, one for each of the SMILES", len(column))
    with (folder / "molecules.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["smiles", *columns])
        writer.writerows([smiles, *map(_cell, row)] for smiles, *row in zip(items, *columns.values(), strict=True))
    return folder / "molecules.csv", ",".join(columns)


def _plain(graph: Data, name: str) -> Data:
    """What a file may hold of a graph: tensors, numbers and words, without the class that it may have."""
    edges_of(graph, name)
    values = {key: value for key, value in graph.to_dict().items() if isinstance(value, Tensor | int | float | str)}
    return Data.from_dict(values).cpu()


def _cell(value: Any) -> str:
    """A number as a table has it: whole ones without a point, nothing where it is unknown."""
    value = value.item() if hasattr(value, "item") else value
    return "" if value is None or value != value else str(int(value) if isinstance(value, bool) else value)
