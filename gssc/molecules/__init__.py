"""Whole GINE + GSSC layers of graphs of at most 64 nodes as kernels: a way to run the training step. See README.md.

This is the door: nothing else of the folder is for use outside of it. What is behind it builds on the loop of
``gssc.train``, which asks here; it is therefore imported when it is called for.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn

    from gssc.config import Recipe
    from gssc.datasets.flat import GraphDataset
    from gssc.molecules.trainer import MoleculeGroup
    from gssc.tasks import Task
    from gssc.train.processes import Processes
    from gssc.train.store import GraphStore

__all__ = ["group_of_trainers", "why_not"]


def why_not(recipe: "Recipe", dataset: "GraphDataset", device: "torch.device", processes: "Processes") -> str | None:
    """Why the kernels for small graphs do not take a run, in a few words; None where they do."""
    if recipe.train.kernels == "none":
        return "train.kernels is none"
    if device.type != "cuda":
        return "there is no GPU"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if processes.world > 1:
        return "several processes share each step"
    from gssc.molecules.supported import why_not_run

    return why_not_run(recipe, dataset, device)


def group_of_trainers(
    models: "Sequence[nn.Module]",
    store: "GraphStore",
    task: "Task",
    recipe: "Recipe",
    seeds: Sequence[int],
    processes: "Processes",
) -> "MoleculeGroup":
    """A trainer for every model and its seed, which take their steps in the same launches; `why_not` is None."""
    from gssc.molecules.trainer import MoleculeGroup, MoleculeTrainer

    pairs = zip(models, seeds, strict=True)
    return MoleculeGroup([MoleculeTrainer(model, store, task, recipe, seed, processes) for model, seed in pairs])
