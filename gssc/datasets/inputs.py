"""Graphs to predict for, brought into the form that a trained model expects: ``.pt``, ``.csv`` or ``.smi``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, InMemoryDataset

from gssc.checks import check_choice, fail
from gssc.datasets.flat import FlatGraphs, GraphDataset, from_about, pack_columns
from gssc.datasets.infer import apply_scale, continuous
from gssc.datasets.negatives import pairs_of
from gssc.datasets.own import load_saved, per_graph
from gssc.datasets.pairs import LABEL, label_name, with_pairs
from gssc.datasets.smiles import Encoding, Table, check_some, read_lines, read_molecules, read_tables
from gssc.datasets.specs import OGB_ATOM, OGB_BOND, SPECS, ZINC_ATOM, ZINC_BOND
from gssc.nn.encoders import Features
from gssc.tasks import Task

ENDINGS = (".pt", ".pth", ".csv", ".smi")
NAMES = ("name", "id", "smiles")  # what graphs are called in predictions, where they say it


@dataclass(frozen=True)
class Inputs:
    """Graphs to predict for; ``rows`` are their numbers in the file, ``labels`` its texts by heading.

    ``skipped`` counts the molecules that were left out, ``read`` is the part of the file that ends here, of 1.
    """

    graphs: FlatGraphs
    rows: list[int]
    labels: dict[str, list[str]]
    skipped: int = 0
    read: float = 1.0


def read_inputs(path: Path, about: Mapping[str, Any], smiles_column: str = "smiles") -> FlatGraphs:
    """The graphs of `open_inputs` alone."""
    return open_inputs(path, about, smiles_column).graphs


def open_inputs(
    source: Path | str | Data | Sequence[Data] | Sequence[str],
    about: Mapping[str, Any],
    smiles_column: str = "smiles",
    *,
    skip_invalid: bool = False,
) -> Inputs:
    """Graphs with the preprocessing of the training data.

    Args:
        source: A ``.pt`` file as for `open_own`, a ``.csv`` file with a column of SMILES, or a ``.smi`` file with one
            SMILES at the beginning of every line and, if you like, a name after it; or PyG graphs; or SMILES, one or
            several.
        about: What the run folder keeps as ``dataset.json``.
        smiles_column: Heading of the SMILES in a CSV file.
        skip_invalid: Leave out molecules that cannot be read, instead of an error.

    Returns:
        The graphs; targets that the file does not hold are NaN, unknown classes -1.
    """
    if isinstance(source, str):
        source = Path(source) if Path(source).suffix.lower() in ENDINGS else [source]
    elif isinstance(source, Data):
        source = source.to_data_list() if isinstance(source, Batch) else [source]
    elif not isinstance(source, Path) and (isinstance(source, Mapping) or not hasattr(source, "__getitem__")):
        fail("graphs", "PyG graphs, SMILES, or the path of a file", type(source).__name__)
    if isinstance(source, Path):
        (whole,) = open_pieces(source, about, smiles_column, skip_invalid=skip_invalid)
        return whole
    dataset = from_about(about)
    if len(source) == 0:
        fail("graphs", "one or more", "none")
    if isinstance(source[0], str):
        smiles = [str(text) for text in source]
        table = Table(smiles, [f"molecule {number}" for number in range(len(smiles))], {"smiles": smiles}, [])
        inputs = _molecules(table, "SMILES", dataset, skip_invalid)
        check_some(len(inputs.rows), len(smiles))
        return _prepared(inputs, dataset, about)
    return _prepared(_graphs(cast("Sequence[Data]", source), dataset), dataset, about)


def open_pieces(
    path: Path,
    about: Mapping[str, Any],
    smiles_column: str = "smiles",
    *,
    skip_invalid: bool = False,
    size: int | None = None,
) -> Iterator[Inputs]:
    """The graphs of a file, as for `open_inputs`, so many at a time, or all at once; of tables no more is read."""
    dataset, ending = from_about(about), path.suffix.lower()
    check_choice("input", ending, ENDINGS)
    if ending not in (".csv", ".smi"):
        whole = _prepared(_graphs(load_saved(path), dataset), dataset, about)
        count, level = whole.graphs.num_graphs, dataset.task.level
        for start in range(0, count, size or max(count, 1)):
            stop = min(start + (size or count), count)
            labels = {name: texts[start:stop] for name, texts in whole.labels.items()}
            graphs = whole.graphs.part(start, stop, level)
            yield Inputs(graphs, whole.rows[start:stop], labels, read=stop / count)
        return
    molecules = rows = 0
    for table in read_tables(path, smiles_column, rows=size) if ending == ".csv" else read_lines(path, size):
        inputs = _prepared(_molecules(table, str(path), dataset, skip_invalid), dataset, about)
        yield replace(inputs, rows=[rows + row for row in inputs.rows], read=table.read)
        rows, molecules = rows + len(table.smiles), molecules + len(inputs.rows)
    check_some(molecules, rows)


def _prepared(inputs: Inputs, dataset: GraphDataset, about: Mapping[str, Any]) -> Inputs:
    """Columns checked against those of training, and scaled like them."""
    flat = inputs.graphs
    # Runs on data of one's own that are older than these keys do not say whether there were weights.
    weighted, said = bool(about.get("edge_weights")), dataset.name in SPECS or {"edge_weights", "graphs"} & set(about)
    if said and weighted != (flat.weight is not None) and flat.num_edges:
        words = {True: "given", False: "none"}
        fail("edge_weight", f"{words[weighted]}, as in training", words[not weighted])
    columns: dict[str, Any] = {
        "x": _checked("x", flat.x, dataset.node_features),
        "edge_attr": _checked("edge_attr", flat.edge_attr, dataset.edge_features),
    }
    for name, (mean, std) in dataset.standardize.items():
        values = columns.get(name)
        if values is None or values.shape[1] != len(mean):
            fail(f"dataset.json, standardize.{name}", "as many columns as there are", len(mean))
        columns[name] = apply_scale(values, mean, std)
    return replace(inputs, graphs=replace(flat, **columns))


def _graphs(graphs: InMemoryDataset | Sequence[Data], dataset: GraphDataset) -> Inputs:
    spec = SPECS.get(dataset.name)
    flat, y = pack_columns(graphs, spec.node if spec else ("x",))
    rows = flat.num_graphs if dataset.task.level == "graph" else flat.num_nodes
    if dataset.task.level == "edge":
        flat, y = with_pairs(graphs, flat, label_name(graphs) or LABEL)
        rows = pairs_of(flat)[0].shape[1]
    targets = _unknown(dataset.task, rows)
    if y is not None:
        with suppress(ValueError):  # targets of another task, which predictions do not need
            targets = dataset.task.targets(y, rows)
    found = {name: per_graph(graphs, name) or [] for name in NAMES}
    labels = {name: [*map(str, words)] for name, words in found.items() if _are_names(words, flat.num_graphs)}
    return Inputs(replace(flat, y=targets), list(range(flat.num_graphs)), labels)


def _are_names(words: Sequence[Any], graphs: int) -> bool:
    """Whether an attribute says something of every graph that a table can hold."""
    return len(words) == graphs and all(isinstance(word, str | int | float) for word in words)


def _molecules(table: Table, source: str, dataset: GraphDataset, skip_invalid: bool) -> Inputs:
    features = (dataset.node_features, dataset.edge_features)
    encodings: dict[Any, Encoding] = {(OGB_ATOM, OGB_BOND): "ogb", (ZINC_ATOM, ZINC_BOND): "zinc"}
    # One column of 28 categories may be anything: only ZINC's own are known to be its types.
    molecular = features in encodings and (encodings[features] == "ogb" or dataset.name in ("zinc-12k", "zinc-full"))
    if not molecular or dataset.task.level != "graph":
        fail("input", f"a .pt file (the model was trained on {dataset.name}, not on molecules)", source)
    molecules = read_molecules(table.smiles, table.where, skip_invalid=skip_invalid, encoding=encodings[features])
    rows = molecules.rows
    graphs = replace(molecules.graphs, y=_unknown(dataset.task, len(rows)))
    labels = {name: [texts[row] for row in rows] for name, texts in table.labels.items()}
    return Inputs(graphs, rows, labels, skipped=len(table.smiles) - len(rows))


def _unknown(task: Task, rows: int) -> Tensor:
    if task.kind == "multiclass":
        return torch.full((rows,), -1)
    return torch.full((rows, task.outputs), float("nan"))


def _checked(name: str, values: Tensor | None, features: Features) -> Tensor | None:
    """The columns in the type the model takes, or an error that says what it was trained with."""
    if features is None:
        return None
    width = features if isinstance(features, int) else len(features)
    if values is None or values.shape[1] != width:
        came = "none" if values is None else f"{values.shape[1]} columns"
        fail(name, f"{width} columns, as in training", came)
    if isinstance(features, int):
        return continuous(values, name)
    if values.is_floating_point():
        fail(name, "integer categories, as in training", values.dtype)
    values = values.long()
    unseen = ((values < 0) | (values >= torch.tensor(features))).T.nonzero()
    if unseen.numel():
        column, row = unseen[0].tolist()
        expected = f"categories 0 to {features[column] - 1}, which training has seen"
        fail(f"{name}, column {column}", expected, f"{int(values[row, column])} in row {row}")
    return values
