"""From a name to graphs in their official split, and to a dataset ready for a model."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch_geometric.data import Data, InMemoryDataset

from gssc.checks import check_choice, fail
from gssc.datasets.cycles import load_cycles
from gssc.datasets.flat import FlatGraphs, GraphDataset, flatten
from gssc.datasets.infer import scale_to_training, standardized
from gssc.datasets.own import masked
from gssc.datasets.pyg import load_files
from gssc.datasets.sbm import GRAPHS as SBM_GRAPHS
from gssc.datasets.sbm import generate_sbm
from gssc.datasets.specs import ONE_GRAPH, SPECS, Spec
from gssc.datasets.split import NAMES as PARTS

DATASETS = tuple(SPECS)  # the names of all datasets


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
    if name.startswith("cycles-"):
        return dict(load_cycles(int(name.removeprefix("cycles-")), root, seed, generate=generate))
    if generate and name in SBM_GRAPHS:
        return dict(generate_sbm(name, seed))
    if generate:
        fail("generate", f"false for {name} (only random models can be generated)", "true")
    return load_files(name, root)


def open_dataset(name: str, root: str | Path, seed: int = 0, *, generate: bool = False, mask: int = 0) -> GraphDataset:
    """The named dataset in its official split, of several the one of number ``mask``; else as `load_dataset`."""
    parts = load_dataset(name, root, seed, generate=generate)
    spec = SPECS[name]
    if name in ONE_GRAPH:
        (graph,) = parts["train"]
        masks = [graph[f"{part}_mask"] for part in PARTS]
        splits = masked(flatten([graph], spec.task), masks, spec.task.level, mask)
        return scale_to_training(GraphDataset(name, spec.task, spec.node_features, None, splits, {}))
    return finish(name, spec, {split: flatten(part, spec.task, node=spec.node) for split, part in parts.items()})


def finish(name: str, spec: Spec, splits: dict[str, FlatGraphs]) -> GraphDataset:
    """What needs the training part: standardised columns, and the scale of the targets."""
    task = spec.task
    if task.metric == "mae/std":
        task = replace(task, scale=float(splits["train"].y.double().std(unbiased=False)) or 1.0)
    dataset = GraphDataset(name, task, spec.node_features, spec.edge_features, splits, {})
    for column in spec.standardize:
        dataset = standardized(dataset, column)
    return dataset
