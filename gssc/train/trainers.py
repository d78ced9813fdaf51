"""Which loop trains a recipe: the kernels for small graphs, captured steps, or the plain one."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import nn

from gssc import molecules
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.protocols import EvaluationProtocol
from gssc.train import captured
from gssc.train.captured import CapturedTrainer
from gssc.train.loop import Position, Trainer
from gssc.train.processes import Processes
from gssc.train.store import GraphStore


class SideBySide(Protocol):
    """Trainers that take their steps together: what a `Trainer` does, for all of them."""

    @property
    def trainers(self) -> Sequence[Trainer]: ...

    def run_epoch(self, positions: Sequence[Position], stop: Callable[[], bool]) -> bool: ...

    def evaluate(self, store: GraphStore, protocol: EvaluationProtocol | None = None) -> list[tuple[float, float]]: ...


class Alone:
    """One trainer, whatever its kind."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainers = [trainer]

    def run_epoch(self, positions: Sequence[Position], stop: Callable[[], bool]) -> bool:
        return self.trainers[0].run_epoch(positions[0], stop)

    def evaluate(self, store: GraphStore, protocol: EvaluationProtocol | None = None) -> list[tuple[float, float]]:
        return [self.trainers[0].evaluate(store, protocol)]


def make_trainers(
    recipe: Recipe,
    dataset: GraphDataset,
    device: torch.device,
    processes: Processes,
    store: GraphStore,
    models: Sequence[nn.Module],
    seeds: Sequence[int],
) -> tuple[SideBySide, list[str]]:
    """A trainer for every model and seed, and remarks on what a GPU could do but does not, each with its reason.

    Several models need a recipe that the kernels for small graphs take.
    """
    arguments = store, dataset.task, recipe
    against_kernels = molecules.why_not(recipe, dataset, device, processes)
    if against_kernels is None:
        return molecules.group_of_trainers(models, *arguments, seeds, processes), []
    assert len(models) == 1
    against_capture = captured.why_not(recipe, device, processes, dataset.node_counts())
    kind = CapturedTrainer if recipe.train.capture and against_capture is None else Trainer
    remarks = []
    if device.type == "cuda" and recipe.train.kernels == "auto":
        remarks.append(f"the kernels for small graphs are not used, because {against_kernels}")
    if device.type == "cuda" and recipe.train.capture and against_capture is not None:
        remarks.append(f"steps are not captured as CUDA graphs, because {against_capture}")
    trainer = kind(models[0], *arguments, seeds[0], processes)
    against_compiling = trainer.compile() if recipe.train.compile else None
    if against_compiling is not None:
        remarks.append(f"layers are not compiled, because {against_compiling}")
    return Alone(trainer), remarks
