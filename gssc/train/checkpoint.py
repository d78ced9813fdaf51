"""The complete state of a run in one file: safetensors with JSON, replaced atomically."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gssc.files import DamagedFileError, load_tensors, save_tensors
from gssc.train.optimizer import Average, load_optimizer_tensors, optimizer_tensors

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands: position, what the unfinished epoch has shown so far, and the best epoch with its weights."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done in the epoch after those
    losses: list[float] = field(default_factory=list)  # of these steps
    best_epoch: int | None = None
    best_score: float | None = None
    best_weights: dict[str, Tensor] = field(default_factory=dict)


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Average | None,
    progress: Progress,
    about: dict[str, Any],
) -> None:
    """Write everything that a resumed run needs; nothing in it depends on the clock."""
    parts = {"model": model.state_dict(), "optimizer": optimizer_tensors(model, optimizer)}
    parts["best"] = progress.best_weights
    if average is not None:
        parts["average"] = average.state
    tensors = {f"{part}:{name}": tensor for part, named in parts.items() for name, tensor in named.items()}
    # Losses as a tensor: JSON would round them.
    tensors["losses"] = torch.tensor(progress.losses, dtype=torch.float64)
    state = {"epoch": progress.epoch, "step": progress.step, "average_steps": int(average.steps) if average else 0}
    best = {"best_epoch": progress.best_epoch, "best_score": _exact(progress.best_score)}
    save_tensors(path, tensors, {"format": FORMAT, "kind": "checkpoint", **state, **best, **about})


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: Average | None,
    expected: dict[str, Any],
) -> Progress:
    """Restore a run. A checkpoint of another run (``expected`` differs) or a damaged one is a one-line error."""
    tensors, about = read_checkpoint(path)
    check_same_run(path, about, expected)
    try:
        model.load_state_dict(part(tensors, "model"))
        load_optimizer_tensors(model, optimizer, part(tensors, "optimizer"))
        if average is not None:
            stored = part(tensors, "average")
            for name, value in average.state.items():
                value.copy_(stored[name])
            average.steps.fill_(about["average_steps"])
        score = about["best_score"]
        return Progress(
            epoch=about["epoch"],
            step=about["step"],
            losses=tensors["losses"].tolist(),
            best_epoch=about["best_epoch"],
            best_score=None if score is None else float.fromhex(score),
            best_weights=part(tensors, "best"),
        )
    except (KeyError, RuntimeError) as error:
        line = str(error).splitlines()[0]
        raise DamagedFileError(f"{path}: expected a checkpoint of this model, got {line}") from None


def check_same_run(path: Path, about: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raise, naming the key, where what was stored is of another recipe, seed or dataset."""
    for key, value in expected.items():
        if about.get(key) != value:
            detail = _first_difference(about.get(key), value)
            raise DamagedFileError(f"{path}: expected a checkpoint of the same run, got another {key}{detail}")


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and description of a checkpoint, unchecked against any run."""
    tensors, about = load_tensors(path)
    if about.get("kind") != "checkpoint" or about.get("format") != FORMAT:
        raise DamagedFileError(f"{path}: expected a checkpoint of format {FORMAT}, got {about.get('kind')!r}")
    return tensors, about


def part(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """One of the parts ``model``, ``optimizer``, ``best``, ``average`` of a checkpoint's tensors."""
    return {key.partition(":")[2]: value for key, value in tensors.items() if key.startswith(f"{name}:")}


def _exact(number: float | None) -> str | None:
    return None if number is None else float(number).hex()


def _first_difference(old: Any, new: Any, path: str = "") -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    return f" ({path}: {old!r} there, {new!r} here)" if path else f" ({old!r} there, {new!r} here)"
