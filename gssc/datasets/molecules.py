"""A table of molecules: SMILES in one column of a CSV file, targets in others."""

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.datasets.flat import GraphDataset
from gssc.datasets.infer import infer_task
from gssc.datasets.own import own_dataset
from gssc.datasets.smiles import read_molecules
from gssc.datasets.specs import OGB_ATOM, OGB_BOND
from gssc.datasets.split import SplitName, random_split, scaffold_split, split_graphs


def open_csv(
    path: str | Path,
    *,
    smiles_column: str,
    target_columns: Sequence[str],
    split: SplitName = "random",
    seed: int = 0,
    task: str | None = None,
    metric: str | None = None,
    skip_invalid: bool = False,
) -> GraphDataset:
    """Molecules as graphs with OGB's atom and bond features, ready for a model.

    Args:
        path: A CSV file with a line of headings.
        smiles_column: Heading of the SMILES.
        target_columns: Headings of the targets; an empty cell is an unknown target. Columns of 0 and 1 are yes-no
            labels, one column of other whole numbers written without sign or point is classes, anything else
            regression.
        split: ``"random"`` or ``"scaffold"`` (Bemis-Murcko; deterministic).
        seed: Of the random split.
        task: ``"regression"``, ``"multiclass"`` or ``"binary"`` where the guess would be wrong.
        metric: One that fits the task.
        skip_invalid: Leave out rows whose SMILES RDKit cannot read, instead of an error.
    """
    check_choice("split", split, ("random", "scaffold"))
    path = Path(path)
    target_columns = [target_columns] if isinstance(target_columns, str) else target_columns
    if not target_columns:
        fail("target_columns", "one or more headings", "none")
    table = read_table(path, smiles_column, target_columns)
    molecules = read_molecules(table.smiles, table.where, scaffolds=split == "scaffold", skip_invalid=skip_invalid)
    y = torch.from_numpy(_numbers(table, target_columns)[molecules.rows])
    names = [f"column {heading}" for heading in target_columns]
    inferred, y = infer_task(_classes(y, table.cells) if task is None else y, "graph", task, metric, names)
    flat = replace(molecules.graphs, y=y)
    parts = scaffold_split(molecules.scaffolds) if split == "scaffold" else random_split(len(flat), seed, "molecules")
    return own_dataset(path, inferred, OGB_ATOM, OGB_BOND, split_graphs(flat, parts, "graph"))


class Table(NamedTuple):
    """SMILES, what errors call each, e.g. "molecules.csv line 3", labels of predictions by heading, and targets."""

    smiles: list[str]
    where: list[str]
    labels: dict[str, list[str]]
    cells: list[list[str]]


def read_table(path: Path, smiles_column: str, target_columns: Sequence[str] = ()) -> Table:
    """The columns of a CSV file that these headings name."""
    smiles, cells, where = [], [], []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            headings = next(reader, [])
            if not headings:
                fail("csv", "headings in the first line", f"no columns in {path}")
            for heading in (smiles_column, *target_columns):
                check_choice(f"column of {path.name}", heading, headings)
                if headings.count(heading) > 1:
                    fail(f"column of {path.name}", f"one {heading!r}", f"{headings.count(heading)}")
            smiles_at, *targets_at = (headings.index(heading) for heading in (smiles_column, *target_columns))
            for row in filter(None, reader):
                place = f"{path.name} line {reader.line_num}"
                if not max([smiles_at, *targets_at]) < len(row) <= len(headings):
                    fail(place, f"{len(headings)} cells", f"{len(row)}")
                smiles.append(row[smiles_at].strip())
                cells.append([row[column].strip() for column in targets_at])
                where.append(place)
    except FileNotFoundError:
        fail("csv", "an existing file", str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        fail("csv", "a CSV file in UTF-8", f"{path} ({error})")
    if not smiles:
        fail("csv", "one or more rows below the headings", f"no rows in {path}")
    return Table(smiles, where, {"smiles": smiles}, cells)


def _numbers(table: Table, headings: Sequence[str]) -> np.ndarray:
    """The targets, NaN where a cell is empty."""
    values = np.full((len(table.cells), len(headings)), np.nan)
    for number, row in enumerate(table.cells):
        for column, text in enumerate(row):
            try:
                values[number, column] = float(text or "nan")
                if math.isinf(values[number, column]):
                    raise ValueError
            except ValueError:
                fail(f"{table.where[number]}, column {headings[column]}", "a number or an empty cell", repr(text))
    return values


def _classes(y: Tensor, cells: list[list[str]]) -> Tensor:
    """Whole numbers in one column, written without a point, are classes (0 and 1 are left to be yes and no)."""
    whole = y.shape[1] == 1 and all(text.isdigit() for (text,) in cells if text)
    numbers = y[y.isfinite()]
    if whole and numbers.numel() and float(numbers.max()) > 1:
        return y.nan_to_num(-1.0).long()
    return y
