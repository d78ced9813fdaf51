"""Your own graphs from a file: PyG ``Data``, one or a list, what ``InMemoryDataset.save`` writes, or a CSV of SMILES.

Graphs of PyG are read with ``torch.load(weights_only=True)`` and PyG's data classes allow-listed; nothing in a file is
executed, and there is no other way in.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import index_to_mask

from gssc.checks import check_choice, fail
from gssc.datasets.claims import check_archive, check_claims
from gssc.datasets.flat import FlatGraphs, GraphDataset, Graphs, collect, pack_columns
from gssc.datasets.infer import Scale, infer_features, infer_level, infer_task, scale_to_training
from gssc.datasets.mapped import map_graph, mapped_features
from gssc.datasets.pairs import finished, label_name, marked_parts, with_pairs
from gssc.datasets.smiles import Table, check_some, read_molecules, read_tables
from gssc.datasets.specs import OGB_ATOM, OGB_BOND, SPECS
from gssc.datasets.split import NAMES, SplitName, random_split, scaffold_split, split_graphs
from gssc.nn.encoders import Features
from gssc.tasks import Task

EXPECTED = "a list of torch_geometric.data.Data, or what InMemoryDataset.save writes"
# What graphs may call the part they belong to.
SPLIT_WORDS = {
    **dict.fromkeys(("train", "training", 0), "train"),
    **dict.fromkeys(("val", "valid", "validation", 1), "val"),
    **dict.fromkeys(("test", 2), "test"),
}


def open_own(
    path: str | Path,
    *,
    split: SplitName = "random",
    seed: int = 0,
    task: str | None = None,
    metric: str | None = None,
    scale: Scale = "auto",
    mask: int = 0,
) -> GraphDataset:
    """A dataset ready for a model, with task, features and split found in the data (see `describe`).

    Args:
        path: The file; or a folder of arrays, which stay there and wait to be scaled, see `gssc.datasets.mapped`.
        split: Where the data bring no split (three graphs or lists; masks ``train_mask``, ``val_mask``, ``test_mask``
            of nodes or of labelled pairs; or ``split`` in every graph): ``"random"``, or ``"scaffold"`` for molecules
            with an attribute ``smiles``.
        seed: Of the random split.
        task: ``"regression"``, ``"multiclass"`` or ``"binary"`` where the guess would be wrong.
        metric: One that fits the task.
        scale: Of continuous features, see `gssc.datasets.infer`.
        mask: The split to take, of masks [N, S] that hold several.
    """
    check_choice("split", split, ("random", "scaffold"))
    check_choice("scale", scale, get_args(Scale))
    path = Path(path)
    mapped = path.is_dir()
    if mapped:
        arrays, flat = map_graph(path)
        saved: Graphs = [Data.from_dict(arrays)]
        raw_y: Tensor | None = flat.y
    else:
        saved = load_saved(path)
        flat, raw_y = pack_columns(saved)
    label = label_name(saved)
    if label is not None:
        flat, raw_y = with_pairs(saved, flat, label)
    if raw_y is None:
        fail(label or "y", "a target for every graph, node or pair", f"no {label or 'y'} in {path}")
    level, y = infer_level(raw_y, flat.num_graphs, flat.num_nodes, flat.pair_index is not None)
    inferred, y = infer_task(y, level, task, metric)
    infer = mapped_features if mapped else infer_features
    (node_features, x), (edge_features, edge_attr) = infer(flat.x, "x"), infer(flat.edge_attr, "edge_attr")
    flat = replace(flat, x=x, edge_attr=edge_attr, y=y)
    splits = _split(saved, flat, level, split, seed, mask)
    if label is not None:
        splits = finished(splits, inferred, seed)
    return _dataset(path, inferred, node_features, edge_features, splits, scale, mapped)


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
    table = next(read_tables(path, smiles_column, target_columns))
    molecules = read_molecules(table.smiles, table.where, scaffolds=split == "scaffold", skip_invalid=skip_invalid)
    check_some(len(molecules.rows), len(table.smiles))
    y = _numbers(table, target_columns)[molecules.rows]
    names = [f"column {heading}" for heading in target_columns]
    inferred, y = infer_task(_classes(y, table.cells) if task is None else y, "graph", task, metric, names)
    flat = replace(molecules.graphs, y=y)
    parts = scaffold_split(molecules.scaffolds) if split == "scaffold" else random_split(len(flat), seed, "molecules")
    return _dataset(path, inferred, OGB_ATOM, OGB_BOND, split_graphs(flat, parts, "graph"))


def _dataset(
    path: Path,
    task: Task,
    node_features: Features,
    edge_features: Features,
    splits: dict[str, FlatGraphs],
    scale: Scale = "standard",
    mapped: bool = False,
) -> GraphDataset:
    """The dataset of a file, scaled to its training part, with a name that no other dataset has."""
    name = f"{path.stem}-own" if path.stem in SPECS else path.stem
    return scale_to_training(GraphDataset(name, task, node_features, edge_features, splits, {}, mapped), scale)


def load_saved(path: Path) -> Graphs:
    """The graphs in a file, not yet looked at."""
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import AttrType, EdgeStorage, GlobalStorage, NodeStorage

    if path.is_file():
        check_archive("data", EXPECTED, path)
    allowed: list[Any] = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, NodeStorage, EdgeStorage]
    # What storages remember of their attributes once they were asked, as by RandomLinkSplit: a defaultdict of sets,
    # which PyTorch does not fill, though PyG may have allowed it. It comes as a plain one, and is dropped.
    allowed += [AttrType, set, (lambda *_: {}, "collections.defaultdict")]
    before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([one for one in before if one is not defaultdict] + allowed)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        fail("data", "an existing file", str(path))
    except Exception as error:  # whatever an unpickler may meet in bytes of another kind
        if blocked := re.search(r"GLOBAL (\S+)", str(error)):
            fail("data", f"{EXPECTED}, without objects of other classes", f"{path}: {blocked[1]}")
        # Of torch's own text the reason alone: around it is advice to read the file without safety.
        lines = str(error).rpartition("WeightsUnpickler error:")[2].split("\n")
        text = next((f": {line.strip()[:200]}" for line in lines if line.strip()), "")
        fail("data", EXPECTED, f"{path}, which cannot be read ({type(error).__name__}{text})")
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)
    _forget(content)
    graphs = _graphs(content, path)
    check_claims(graphs, path)
    return graphs


def _forget(content: Any) -> None:
    """Drop what the storages of graphs remember of their attributes."""
    if isinstance(content, Data):
        content._store.__dict__.pop("_cached_attr", None)
    elif isinstance(content, list | tuple):
        for part in content:
            _forget(part)


def _graphs(content: Any, path: Path) -> Graphs:
    content = marked_parts(content)
    if isinstance(content, Data):
        return [content]
    if isinstance(content, tuple) and len(content) in (2, 3) and isinstance(content[0], (dict, Data)):
        if len(content) == 3 and content[2] is not Data:
            name = getattr(content[2], "__name__", type(content[2]).__name__)
            fail("data", "graphs of the class torch_geometric.data.Data", f"{path}: {name}")
        stored = content[0] if isinstance(content[0], Data) else Data.from_dict(content[0])
        slices = content[1]
        if slices is None:
            return [stored]
        if isinstance(slices, dict) and all(isinstance(cuts, Tensor) for cuts in slices.values()):
            dataset = InMemoryDataset()
            dataset.data, dataset.slices = stored, slices
            return dataset
    if not isinstance(content, (list, tuple)) or not content:
        fail("data", EXPECTED, f"{path}: {type(content).__name__}")
    others = sorted({type(item).__name__ for item in content if not isinstance(item, Data)})
    if others:
        fail("data", EXPECTED, f"{path}: {type(content).__name__} of {', '.join(others)}")
    return list(content)


def _numbers(table: Table, headings: Sequence[str]) -> Tensor:
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
    return torch.from_numpy(values)


def _classes(y: Tensor, cells: list[list[str]]) -> Tensor:
    """Whole numbers in one column, written without a point, are classes (0 and 1 are left to be yes and no)."""
    whole = y.shape[1] == 1 and all(text.isdigit() for (text,) in cells if text)
    numbers = y[y.isfinite()]
    if whole and numbers.numel() and float(numbers.max()) > 1:
        return y.nan_to_num(-1.0).long()
    return y


def _split(
    saved: Graphs, flat: FlatGraphs, level: str, split: SplitName, seed: int, mask: int = 0
) -> dict[str, FlatGraphs]:
    words = per_graph(saved, "split")
    masks = [collect(saved, f"{name}_mask")[0] for name in NAMES] if level == "node" or words is None else [None]
    if level != "graph" and masks[0] is not None:
        return masked(flat, masks, level, mask)
    if mask:
        fail("data.mask", "0, or masks with several columns", mask)
    if words is not None:
        for word in words:
            check_choice("split of a graph", word, SPLIT_WORDS)
        part_of_graph = np.array([SPLIT_WORDS[word] for word in words])
        parts = {name: np.flatnonzero(part_of_graph == name) for name in NAMES}
        empty = [name for name, members in parts.items() if len(members) == 0]
        if empty:
            fail("split", "graphs in each of train, val and test", f"none in {' and '.join(empty)}")
    elif split == "scaffold":
        smiles = per_graph(saved, "smiles")
        if smiles is None or not all(isinstance(text, str) for text in smiles):
            fail("split", "an attribute smiles in every graph for a scaffold split", "none (a random split needs none)")
        where = [f"smiles of graph {i}" for i in range(len(smiles))]
        parts = scaffold_split(read_molecules(smiles, where, scaffolds=True).scaffolds)
    elif level != "graph" and flat.num_graphs < 3:
        rows = random_split(len(flat.y), seed, f"{level}s").values()
        return masked(flat, [index_to_mask(torch.from_numpy(members), len(flat.y)) for members in rows], level)
    else:
        parts = random_split(flat.num_graphs, seed)
    return split_graphs(flat, parts, level)


def count_splits(path: Path) -> int:
    """How many splits the masks of nodes in a file hold; one where there are none."""
    masks = [mask for name in NAMES if (mask := collect(load_saved(path), f"{name}_mask")[0]) is not None]
    return max((mask.shape[1] for mask in masks if mask.dim() == 2), default=1)


def masked(flat: FlatGraphs, masks: Sequence[Tensor | None], level: str, number: int = 0) -> dict[str, FlatGraphs]:
    """The same graphs three times, with the nodes (or labelled pairs) that count marked in each.

    Of masks with several columns it is this ``number``; one without them serves every split.
    """
    marked: dict[str, Tensor] = {}
    for name, mask in zip(NAMES, masks, strict=True):
        if mask is None:
            fail(f"{name}_mask", "given, like train_mask", "none")
        if mask.shape[0] != len(flat.y) or mask.dim() > 2:
            expected = f"one truth value for each of {len(flat.y)} {level}s, or a column of them for each split"
            fail(f"{name}_mask", expected, list(mask.shape))
        columns = mask.reshape(len(mask), -1).bool()
        if columns.shape[1] > 1 and number >= columns.shape[1]:
            fail("data.mask", f"a split from 0 to {columns.shape[1] - 1}, as {name}_mask has them", number)
        mask = columns[:, number if columns.shape[1] > 1 else 0]
        if not bool(mask.any()):
            fail(f"{name}_mask", f"one or more {level}s", "none")
        for other, nodes in marked.items():
            if bool((nodes & mask).any()):
                fail(f"{name}_mask", f"no {level}s of {other}_mask", f"{int((nodes & mask).sum())} that both have")
        marked[name] = mask
    return {name: replace(flat, mask=mask) for name, mask in marked.items()}


def per_graph(saved: Graphs, name: str) -> list[Any] | None:
    """An attribute that is one word or number per graph."""
    values: Any = saved._data.get(name) if isinstance(saved, InMemoryDataset) else [graph.get(name) for graph in saved]
    values = values.tolist() if isinstance(values, Tensor) else values
    if not isinstance(values, list) or all(value is None for value in values):
        return None
    values = [value.item() if isinstance(value, Tensor) and value.numel() == 1 else value for value in values]
    return [value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value for value in values]
