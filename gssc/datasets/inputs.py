"""Graphs to predict for, brought into the form that a trained model expects: ``.pt``, ``.csv`` or ``.smi``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.datasets.degree_profile import degree_profile
from gssc.datasets.flat import FlatGraphs, GraphDataset, from_about, pack_columns
from gssc.datasets.infer import apply_scale
from gssc.datasets.molecules import flat_molecules, read_table
from gssc.datasets.own import load_saved
from gssc.datasets.smiles import read_molecules
from gssc.datasets.specs import OGB_ATOM, OGB_BOND, SPECS
from gssc.nn.encoders import Features
from gssc.tasks import Task


def read_inputs(path: Path, about: Mapping[str, Any], smiles_column: str = "smiles") -> FlatGraphs:
    """Graphs with the preprocessing of the training data.

    Args:
        path: A ``.pt`` file as for `open_own`, a ``.csv`` file with a column of SMILES, or a ``.smi`` file with one
            SMILES at the beginning of every line.
        about: What the run folder keeps as ``dataset.json``.
        smiles_column: Heading of the SMILES in a CSV file.

    Returns:
        The graphs; targets that the file does not hold are NaN, unknown classes -1.
    """
    dataset = from_about(about)
    ending = path.suffix.lower()
    check_choice("input", ending, (".pt", ".pth", ".csv", ".smi"))
    if ending in (".csv", ".smi"):
        flat = _molecules(path, dataset, smiles_column)
    else:
        spec = SPECS.get(dataset.name)
        flat, y = pack_columns(load_saved(path), spec.node if spec else ("x",))
        rows = flat.num_graphs if dataset.task.level == "graph" else flat.num_nodes
        flat = replace(flat, y=_unknown(dataset.task, rows) if y is None else dataset.task.targets(y, rows))
    if dataset.name == "malnet-tiny":
        flat = replace(flat, x=degree_profile(flat.packed()))
    x = _checked("x", flat.x, dataset.node_features, flat.num_nodes)
    edge_attr = _checked("edge_attr", flat.edge_attr, dataset.edge_features, flat.num_edges)
    scaled: dict[str, Any] = {
        name: apply_scale(values, *dataset.standardize[name])
        for name, values in (("x", x), ("edge_attr", edge_attr))
        if values is not None and name in dataset.standardize
    }
    return replace(replace(flat, x=x, edge_attr=edge_attr), **scaled)


def _molecules(path: Path, dataset: GraphDataset, smiles_column: str) -> FlatGraphs:
    if (dataset.node_features, dataset.edge_features) != (OGB_ATOM, OGB_BOND) or dataset.task.level != "graph":
        fail("input", f"a .pt file (the model was trained on {dataset.name}, not on molecules)", str(path))
    if path.suffix.lower() == ".csv":
        smiles, _, where = read_table(path, smiles_column)
    else:
        smiles, where = _read_lines(path)
    return flat_molecules(read_molecules(smiles, where), _unknown(dataset.task, len(smiles)))


def _read_lines(path: Path) -> tuple[list[str], list[str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        fail("input", "a file of SMILES", f"{path} ({error})")
    kept = [(line.split()[0], f"{path.name} line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not kept:
        fail("input", "one or more SMILES", f"none in {path}")
    return [text for text, _ in kept], [place for _, place in kept]


def _unknown(task: Task, rows: int) -> Tensor:
    if task.kind == "multiclass":
        return torch.full((rows,), -1)
    return torch.full((rows, task.outputs), float("nan"))


def _checked(name: str, values: Tensor | None, features: Features, rows: int) -> Tensor | None:
    """The columns in the type the model takes, or an error that says what it was trained with."""
    if features is None:
        return None
    width = features if isinstance(features, int) else len(features)
    if values is None or values.shape[1] != width:
        came = "none" if values is None else f"{values.shape[1]} columns"
        fail(name, f"{width} columns, as in training", came)
    if isinstance(features, int):
        values = values.to(torch.get_default_dtype())
        if not bool(values.isfinite().all()):
            fail(name, "finite numbers", f"{int((~values.isfinite()).sum())} that are not")
        return values
    if values.is_floating_point():
        fail(name, "integer categories, as in training", values.dtype)
    return _in_vocabulary(name, values.long(), features)


def _in_vocabulary(name: str, values: Tensor, sizes: Sequence[int]) -> Tensor:
    for column, size in enumerate(sizes):
        bad = (values[:, column] < 0) | (values[:, column] >= size)
        if bool(bad.any()):
            fail(
                f"{name}, column {column}",
                f"categories 0 to {size - 1}, which training has seen",
                f"{int(values[bad, column][0])} in row {int(bad.nonzero()[0])}",
            )
    return values
