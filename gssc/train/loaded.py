"""A run read back from its folder, to predict with or to begin another run with its weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from gssc.checks import fail
from gssc.config import Recipe, load_recipe
from gssc.datasets.flat import FlatGraphs, from_about
from gssc.datasets.inputs import open_inputs
from gssc.files import DamagedFileError, load_tensors, replace_folder, weights_file
from gssc.model import GSSC
from gssc.readers import DATASET, SUMMARY, conform, read_object, read_text
from gssc.tasks import Task
from gssc.train.build import build_model, build_store, check_weights
from gssc.train.checkpoint import difference, part, read_checkpoint
from gssc.train.evaluate import default_dtype, float32_products, predictions, raw_outputs

# Of a summary: what the file of the weights has as well.
COMPARED = ("seed", "dataset", "metric", "higher_is_better")
SHOWN = 3  # names of tensors in the line about those that begin anew


@dataclass(frozen=True)
class LoadedRun:
    """A run read back: its recipe, what its dataset looks like, and the selected weights in a model."""

    recipe: Recipe
    about: dict[str, Any]
    model: GSSC
    summary: dict[str, Any] | None
    folder: Path

    @property
    def task(self) -> Task:
        return from_about(self.about).task

    @property
    def target_names(self) -> list[str]:
        """What the outputs are called: by the headings of a table, or by their numbers; "" for a single one."""
        data, count = self.recipe.data, self.task.outputs
        named = [name.strip() for name in (data.target_columns or "").split(",")] if data.file else []
        return named if len(named) == count and all(named) else [str(i) for i in range(count)] if count > 1 else [""]

    @property
    def card(self) -> str | None:
        """What a published model says of itself, in Markdown; a run has none."""
        path = self.folder / "README.md"
        return read_text(path) if path.exists() else None

    def predict(
        self, graphs: Path | str | Data | Sequence[Data] | Sequence[str], batch_size: int | None = None
    ) -> Tensor:
        """Predictions for new graphs, [rows, outputs]: values in the units of the data, or probabilities.

        Args:
            graphs: PyG graphs with the features of the training data before any preprocessing, SMILES for models of
                molecules, or the path of a file as for `gssc predict`.
            batch_size: That of training unless given; the same batches give the same bits.
        """
        with default_dtype(self.recipe.train.precision):
            return predict_together([self], open_inputs(graphs, self.about).graphs, batch_size)[0]

    def save(self, folder: str | Path) -> None:
        """Keep what the run has written, but for its checkpoints, in a new folder, and the graphs of a `gssc.fit`.

        `gssc.load_pretrained` and `gssc.open_model` read it back, `gssc predict`, `evaluate` and `explain` take it.
        """
        out, data = Path(folder), Path(self.recipe.data.file or "")
        if out.exists():
            fail("folder", "a new one", out)
        if weights_file(self.folder) is None:
            fail("run", "a finished one", self.folder)
        files = [*self.folder.iterdir(), *([data] if data.parent == self.folder.parent else [])]
        replace_folder(out, {path.name: path.read_bytes() for path in files if path.is_file()})


def predict_together(runs: Sequence[LoadedRun], graphs: FlatGraphs, batch_size: int | None = None) -> Tensor:
    """What each of several runs of one recipe predicts, [runs, rows, outputs]; spectra are computed once."""
    recipe, task, device = runs[0].recipe, runs[0].task, next(runs[0].model.parameters()).device
    store = build_store(graphs, recipe, task.level, device, None)
    size = batch_size or recipe.train.batch_size
    with float32_products():  # like the scores of the run
        raw = [raw_outputs(run.model, store, size, recipe.train.precision) for run in runs]
    return torch.stack([predictions(outputs, store, task)["prediction"] for outputs in raw])


def load_run(folder: Path, device: torch.device | None = None) -> LoadedRun:
    """A finished run, or the best weights so far of one that is not."""
    if not (folder / "config.yaml").exists():
        fail("run", "the folder of a run with its config.yaml, OUT/seed-N of `gssc train`", str(folder))
    recipe = load_recipe(folder / "config.yaml")
    about = read_object(folder / "dataset.json", DATASET)
    summary = read_object(folder / "summary.json", SUMMARY) if (folder / "summary.json").exists() else None
    if (selected := weights_file(folder)) is not None:
        weights, stored = load_tensors(selected)
    else:
        selected = folder / "checkpoints" / "last.safetensors"
        tensors, stored = read_checkpoint(selected)
        weights = part(tensors, "best") or part(tensors, "model")
    _check_agreement(folder, selected, stored, {"recipe": recipe.to_dict(), "dataset": about}, summary)
    about = stored.get("dataset", about)  # the same, but under the checksum
    from_about(about)
    with default_dtype(recipe.train.precision):
        check_weights(recipe, about, weights, folder / "config.yaml")
        model = build_model(recipe, about)
    model.load_state_dict(weights)
    return LoadedRun(recipe, about, model.to(device or "cpu").eval(), summary, folder)


def _check_agreement(
    folder: Path, weights: Path, stored: dict[str, Any], beside: dict[str, Any], summary: dict[str, Any] | None
) -> None:
    """Fail where the files of a run say something else than the file of its weights does, which has a checksum.

    What a recipe is called and where its data lie may be changed; scores may be taken again.
    """
    if isinstance(stored.get("dataset"), dict):
        conform(stored["dataset"], DATASET, weights)
    for key, file in (("recipe", "config.yaml"), ("dataset", "dataset.json")):
        values, held = beside[key], stored.get(key)
        if isinstance(held, dict) and key == "recipe" and isinstance(held.get("data"), dict):
            held = held | {"name": values["name"], "data": held["data"] | {"file": values["data"]["file"]}}
        if held is not None and (other := difference({key: held}, {key: values})):
            raise DamagedFileError(f"{folder / file}: expected what {weights.name} was saved with, got another {other}")
    scored: dict[str, Any] = stored.get("summary") or {}
    for key in COMPARED if scored and summary else ():
        value, found = scored.get(key), (summary or {}).get(key)
        if value != found:
            expected = f"{key} = {value!r} as {weights.name} was saved with"
            raise DamagedFileError(f"{folder / 'summary.json'}: expected {expected}, got {found!r}")


def take_weights(model: GSSC, folder: Path, seed: int) -> str:
    """Copy what fits of a trained model into a new one, in place; returns what is to be said of it: fine-tuning.

    Weights and statistics of norms are taken where name and shape are the same: all of them where the model is the
    same, all but the last Linear where the targets are others. What has no counterpart begins as the seed makes it.

    The folder is that of a run or of a published model; or OUT of `gssc train`, of which seed N continues seed N.
    """
    if not (folder / "config.yaml").exists() and (seeds := sorted(folder.glob("seed-*/config.yaml"))):
        folder = folder / f"seed-{seed}"
        if not (folder / "config.yaml").exists():
            others = ", ".join(path.parent.name for path in seeds)
            fail("run", f"a folder with seed-{seed}", f"{folder.parent} with {others}")
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    trained = load_run(folder).model.state_dict()
    taken = {name: tensor for name, tensor in trained.items() if shapes.get(name) == tensor.shape}
    parameters = dict(model.named_parameters())
    if not any(name in parameters for name in taken):
        fail("run", "a model that shares weights with this one", f"{folder}, of which none has the same shape")
    model.load_state_dict(taken, strict=False)
    anew = [name for name in parameters if name not in taken]
    if not anew:
        return f"begins with the weights of {folder}"
    count = sum(parameters[name].numel() for name in anew)
    names = ", ".join(anew[:SHOWN]) + (f" and {len(anew) - SHOWN} more" if len(anew) > SHOWN else "")
    return f"begins with the weights of {folder}, but for {count:,} that begin anew ({names})"
