"""BatchNorm statistics of all training graphs, batch by batch as replayed CUDA graphs."""

from functools import partial

import torch
from torch import nn

from gssc.nn.moments import Moments, joined_moments
from gssc.nn.norm import batch_norms, observed_batch_norms, set_statistics
from gssc.train.evaluate import autocast
from gssc.train.replay import Replay
from gssc.train.schedule import Schedule
from gssc.train.shapes import Shape
from gssc.train.store import GraphStore


class CapturedStatistics:
    """`reestimate_batch_norms` over static shapes: moments are added up in place, where a captured graph can do it.

    Args:
        model: Whose statistics are replaced; its memory stays where it is.
        store: Training graphs, taken in their order.
        batch_size: Graphs that are normalised together.
        precision: As in the recipe.
    """

    def __init__(self, model: nn.Module, store: GraphStore, batch_size: int, precision: str) -> None:
        self.model, self.store, self.precision = model, store, precision
        self.schedule = Schedule.in_order(store, batch_size)

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=store.device)

        norms = batch_norms(model).values()
        self.totals: dict[nn.Module, Moments] = {
            norm: Moments(zeros(), zeros(norm.num_features), zeros(norm.num_features)) for norm in norms
        }
        self.replays: dict[Shape, Replay] = {}

    def __call__(self) -> None:
        """Replace the statistics."""
        for tensor in self._state():
            tensor.zero_()
        with observed_batch_norms(self.model, self._add):
            for shape in self.schedule.next:
                if shape not in self.replays:
                    self.replays[shape] = self._capture(shape)
                self.replays[shape]()
        set_statistics(self.model, self.totals)

    def _state(self) -> list[torch.Tensor]:
        return [self.schedule.at, *(tensor for total in self.totals.values() for tensor in total)]

    def _add(self, norm: nn.Module, moments: Moments) -> None:
        for kept, value in zip(self.totals[norm], joined_moments(self.totals[norm], moments), strict=True):
            kept.copy_(value)

    def _capture(self, shape: Shape) -> Replay:
        before = [tensor.clone() for tensor in self._state()]

        def restore() -> None:
            for tensor, value in zip(self._state(), before, strict=True):
                tensor.copy_(value)

        return Replay(partial(self._batch, shape), self.store.device, restore)

    def _batch(self, shape: Shape) -> None:
        batch = self.schedule.batch(shape)
        with autocast(self.store.device, self.precision):
            self.model(**batch.inputs)
        self.schedule.at.add_(1)
