"""From a name to a dataset ready for a model."""

from dataclasses import replace
from pathlib import Path

import torch

from gssc.checks import check_choice
from gssc.datasets.degree_profile import degree_profile
from gssc.datasets.flat import FlatGraphs, GraphDataset, flatten
from gssc.datasets.specs import SPECS, Spec


def open_dataset(name: str, root: str | Path, seed: int = 0, *, generate: bool = False) -> GraphDataset:
    """The named dataset in its official split; arguments as for `load_dataset`."""
    from gssc.datasets import load_dataset

    check_choice("dataset", name, SPECS)
    spec = SPECS[name]
    parts = load_dataset(name, root, seed, generate=generate)
    splits = {split: flatten(part, spec.task, node=spec.node) for split, part in parts.items()}
    return finish(name, spec, splits)


def finish(name: str, spec: Spec, splits: dict[str, FlatGraphs]) -> GraphDataset:
    """What needs the training part: features from degrees, standardised columns, and the scale of the targets."""
    if name == "malnet-tiny":
        splits = {split: replace(flat, x=degree_profile(flat.packed())) for split, flat in splits.items()}
    standardize: dict[str, tuple[list[float], list[float]]] = {}
    for column in spec.standardize:
        values = getattr(splits["train"], column).double()
        mean, std = values.mean(0), values.std(0, unbiased=False)
        std = torch.where(std > 0, std, torch.ones_like(std))
        standardize[column] = (mean.tolist(), std.tolist())
        dtype = torch.get_default_dtype()
        splits = {
            split: replace(flat, **{column: ((getattr(flat, column) - mean) / std).to(dtype)})
            for split, flat in splits.items()
        }
    task = spec.task
    if task.metric == "mae/std":
        task = replace(task, scale=float(splits["train"].y.double().std(unbiased=False)) or 1.0)
    return GraphDataset(name, task, spec.node_features, spec.edge_features, splits, standardize)
