"""The complete state of a run in one file: safetensors with JSON, replaced atomically."""

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gssc.checks import first_line
from gssc.config import with_defaults
from gssc.files import DamagedFileError, load_tensors, save_tensors
from gssc.readers import CHECKPOINT, NONSENSE, conform
from gssc.train.optimizer import load_optimizer_tensors, optimizer_tensors
from gssc.train.step import Position, Trainer

FORMAT = 1
# Keys of a recipe's ``train`` that a resumed run may set anew, or that are retired: they do not touch the training.
HABITS = ("checkpoint_every", "checkpoint_minutes", "tensorboard", "also", "also_every")


@dataclass
class Best:
    """The best epoch, its score on validation (or the median of several), and the weights that had it."""

    epoch: int | None = None
    score: float | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)
    recent: list[float] = field(default_factory=list)  # the last scores

    def median(self, score: float, over: int) -> float:
        """Of the last ``over`` scores, this one among them; NaN where there are fewer, or one is none."""
        self.recent = [*self.recent, score][-over:]
        complete = len(self.recent) == over and all(map(math.isfinite, self.recent))
        return statistics.median(self.recent) if complete else math.nan


def save_checkpoint(path: Path, trainer: Trainer, position: Position, best: Best, about: dict[str, Any]) -> None:
    """Write everything that a resumed run needs; nothing in it depends on the clock."""
    model, average = trainer.model, trainer.average
    parts = {"model": model.state_dict(), "optimizer": optimizer_tensors(model, trainer.optimizer)}
    parts["best"] = best.weights
    if average is not None:
        parts[f"average {average.decay!r}"] = average.weights
    tensors = {f"{part}:{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    # Losses as a tensor: JSON would round them.
    tensors["losses"] = torch.tensor(position.finite_losses(), dtype=torch.float64)
    state: dict[str, Any] = {"epoch": position.epoch - 1, "step": position.step}  # epochs done, steps of the next
    state["average_steps"] = 0 if average is None else int(average.steps)
    state |= {"best_epoch": best.epoch, "best_score": None if best.score is None else float(best.score).hex()}
    state["recent_scores"] = [float(score).hex() for score in best.recent]
    save_tensors(path, tensors, {"format": FORMAT, "kind": "checkpoint", **state, **about})


def load_checkpoint(path: Path, trainer: Trainer, expected: dict[str, Any]) -> tuple[Position, Best]:
    """Restore a run. A checkpoint of another run (``expected`` differs) or a damaged one is a one-line error."""
    tensors, about = read_checkpoint(path)
    check_same_run(path, about, expected)
    model, average = trainer.model, trainer.average
    try:
        model.load_state_dict(part(tensors, "model"))
        load_optimizer_tensors(model, trainer.optimizer, part(tensors, "optimizer"))
        if average is not None:
            average.load(part(tensors, f"average {average.decay!r}"), about["average_steps"])
        score = None if about["best_score"] is None else float.fromhex(about["best_score"])
        losses = tensors["losses"].to(trainer.store.device, torch.get_default_dtype())
        position = Position(about["epoch"] + 1, about["step"], list(losses.unbind()))
        recent = [float.fromhex(text) for text in about.get("recent_scores", ())]
        best, shapes = part(tensors, "best"), {name: value.shape for name, value in model.state_dict().items()}
        if best and {name: value.shape for name, value in best.items()} != shapes:
            raise ValueError("best weights of another shape")
        return position, Best(about["best_epoch"], score, best, recent)
    except (*NONSENSE, RuntimeError) as error:
        raise DamagedFileError(f"{path}: expected a checkpoint of this model, got {first_line(error)}") from None


def check_same_run(path: Path, about: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise, naming the key, where what was stored is of another recipe (but for `HABITS`), seed or dataset."""
    other = difference(about, expected)
    if other is not None:
        raise DamagedFileError(f"{path}: expected a checkpoint of the same run, got another {other}")


def difference(about: dict[str, Any], expected: dict[str, Any]) -> str | None:
    """The first thing in which a run that is stored differs from another, with both values; None where it does not.

    What is older than a key of recipes had its default; what is older than the digest of the graphs passes without.
    """
    for key, value in expected.items():
        stored = about.get(key)
        if key == "recipe" and isinstance(stored, dict):
            stored, value = _trained(stored), _trained(value)
        if key == "dataset" and isinstance(stored, dict):
            # A former digest, "content", went by the order of edges as well, which packs change.
            value = _without(value, "content", *({"graphs", "edge_weights"} - set(stored)))
            stored = _without(stored, "content", *({"graphs"} - set(value)))
        if stored != value:
            return f"{key}{_first_difference(stored, value)}"
    return None


def _trained(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe with all of its keys, but for those that do not touch the training."""
    complete = with_defaults(recipe)
    return {
        name: _without(values, *HABITS) if name == "train" and isinstance(values, dict) else values
        for name, values in complete.items()
    }


def _without(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a checkpoint, unchecked against any run."""
    tensors, about = load_tensors(path)
    if about.get("kind") != "checkpoint" or about.get("format") != FORMAT:
        raise DamagedFileError(f"{path}: expected a checkpoint of format {FORMAT}, got {about.get('kind')!r}")
    conform(about, CHECKPOINT, path)
    return tensors, about


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """One of the parts ``model``, ``optimizer``, ``best``, ``average DECAY`` of a checkpoint."""
    return {key.partition(":")[2]: value for key, value in tensors.items() if key.startswith(f"{name}:")}


def _first_difference(old: Any, new: Any, path: str = "") -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    return f" ({path}: {old!r} there, {new!r} here)" if path else f" ({old!r} there, {new!r} here)"
