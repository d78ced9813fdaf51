"""How the steps of a run are taken: by kernels for small graphs, as replayed CUDA graphs, or launched one by one."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from torch import nn

from gssc import molecules
from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.train import replayed
from gssc.train.processes import RunSettings
from gssc.train.replayed import ReplayedTrainer
from gssc.train.step import Position, Trainer
from gssc.train.store import GraphStore

if TYPE_CHECKING:
    from gssc.molecules.trainer import MoleculeGroup

Way = Literal["kernels", "replayed", "launched"]
SideBySide: TypeAlias = "Alone | MoleculeGroup"


def choose_way(recipe: Recipe, dataset: GraphDataset, settings: RunSettings) -> tuple[Way, str]:
    """The fastest way that takes a run, and a line that says which it is and why it is no other."""
    device, processes = settings.device, settings.processes
    against_kernels = molecules.why_not(recipe, dataset, device, processes)
    if against_kernels is None:
        return "kernels", "steps: the kernels for small graphs"
    no_kernels = f"the kernels for small graphs are not used, because {against_kernels}"
    against_replay = replayed.why_not(recipe, device, processes, dataset.node_counts())
    if against_replay is None:
        return "replayed", f"steps: replayed as CUDA graphs; {no_kernels}"
    no_replay = f"they are not replayed as CUDA graphs, because {against_replay}"
    return "launched", f"steps: launched one by one; {no_replay}; {no_kernels}"


class Alone:
    """One trainer, whatever its kind, as a group of them that take their steps together."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainers = [trainer]

    def run_epoch(self, positions: Sequence[Position], stop: Callable[[], bool]) -> bool:
        return self.trainers[0].run_epoch(positions[0], stop)

    def evaluate(self, store: GraphStore) -> list[tuple[float, float]]:
        return [self.trainers[0].evaluate(store)]


def make_trainers(
    recipe: Recipe,
    dataset: GraphDataset,
    settings: RunSettings,
    store: GraphStore,
    models: Sequence[nn.Module],
    seeds: Sequence[int],
) -> tuple[SideBySide, str]:
    """A trainer for every model and seed, and what is to be said of it (on a CPU, where all run alike, nothing).

    Several models need a recipe that the kernels for small graphs take.
    """
    way, line = choose_way(recipe, dataset, settings)
    if way == "kernels":
        return molecules.group_of_trainers(models, store, dataset.task, recipe, seeds, settings.processes), line
    (model,), (seed,) = models, seeds
    kind = ReplayedTrainer if way == "replayed" else Trainer
    trainer = kind(model, store, dataset.task, recipe, seed, settings.processes)
    return Alone(trainer), line if settings.device.type == "cuda" else ""
