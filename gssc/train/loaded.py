"""A run read back from its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.config import Recipe, load_recipe
from gssc.files import load_tensors, read_json
from gssc.model import GSSC
from gssc.tasks import Task
from gssc.train.build import build_model
from gssc.train.checkpoint import part, read_checkpoint
from gssc.train.evaluate import default_dtype


@dataclass(frozen=True)
class LoadedRun:
    """A run read back: its recipe, what its dataset looks like, and the selected weights in a model."""

    recipe: Recipe
    about: dict[str, Any]
    model: GSSC
    summary: dict[str, Any] | None

    @property
    def task(self) -> Task:
        return Task(**self.about["task"])


def load_run(folder: Path, device: torch.device | None = None) -> LoadedRun:
    """A finished run, or the best weights so far of one that is not."""
    if not (folder / "config.yaml").exists():
        fail("run", "the folder of a run with its config.yaml, OUT/seed-N of `gssc train`", str(folder))
    recipe = load_recipe(folder / "config.yaml")
    about = read_json(folder / "dataset.json")
    summary = read_json(folder / "summary.json") if (folder / "summary.json").exists() else None
    weights: dict[str, Tensor]
    if (folder / "model.safetensors").exists():
        weights, _ = load_tensors(folder / "model.safetensors")
    else:
        tensors, _ = read_checkpoint(folder / "checkpoints" / "last.safetensors")
        weights = part(tensors, "best") or part(tensors, "model")
    with default_dtype(recipe.train.precision):
        model = build_model(recipe, about)
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        fail("run", f"weights of the model that {folder / 'config.yaml'} describes", str(error).splitlines()[0])
    return LoadedRun(recipe, about, model.to(device or "cpu").eval(), summary)
