"""BatchNorm statistics of all training graphs, batch by batch as replayed CUDA graphs."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gssc.nn.moments import Moments
from gssc.nn.norm import batch_norms, normalizing_by_batch, set_statistics
from gssc.train.evaluate import autocast
from gssc.train.replay import Replay
from gssc.train.schedule import Schedule
from gssc.train.shapes import Shape
from gssc.train.store import GraphStore

MASKS = ("node_mask", "edge_mask")


class CapturedStatistics:
    """`reestimate_batch_norms` over static shapes, with the kernels of training.

    With momentum 1 the running statistics after a batch are those of the batch, so norms need not be watched and stay
    fused. Those of all norms, end to end, are then merged into totals (float64) as one vector. What differs from the
    plain form: moments of a batch are summed in float32, and a batch of fewer than two rows adds nothing.

    Args:
        model: Whose statistics are replaced; its memory stays where it is.
        store: Training graphs, taken in their order.
        batch_size: Graphs that are normalised together.
        precision: As in the recipe.
    """

    def __init__(self, model: nn.Module, store: GraphStore, batch_size: int, precision: str) -> None:
        self.model, self.store, self.precision = model, store, precision
        self.schedule = Schedule.in_order(store, batch_size)
        self.norms: dict[nn.BatchNorm1d, int] = {}  # which of MASKS says what counts; filled by the first batch
        self.which = self.totals = torch.zeros(0)
        self.replays: dict[Shape, Replay] = {}

    def __call__(self) -> None:
        """Replace the statistics."""
        if not self.norms:
            self._look_at_norms()
        self.schedule.at.zero_()
        self.totals.zero_()
        with normalizing_by_batch(self.model, 1.0):
            for shape in self.schedule.next:
                if shape not in self.replays:
                    self.replays[shape] = self._capture(shape)
                self.replays[shape]()
        sizes = [norm.num_features for norm in self.norms]
        found = zip(self.norms, *(total.split(sizes) for total in self.totals), strict=True)
        set_statistics(self.model, {norm: Moments(n[0], mean, squares) for norm, n, mean, squares in found})

    def _look_at_norms(self) -> None:
        """Which norms take part in evaluation, and whether their rows are nodes or edges."""
        self.schedule.at.zero_()
        inputs = self.schedule.batch(self.schedule.next[0]).inputs
        masks = [inputs[name] for name in MASKS]

        def look(norm: nn.BatchNorm1d, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
            given: Any = kwargs.get("mask", args[1] if len(args) > 1 else None)
            self.norms[norm] = next(i for i, mask in enumerate(masks) if given is mask)

        hooks = [norm.register_forward_pre_hook(look, with_kwargs=True) for norm in batch_norms(self.model).values()]
        try:
            with normalizing_by_batch(self.model, 0.0), autocast(self.store.device, self.precision):
                self.model(**inputs)
        finally:
            for hook in hooks:
                hook.remove()
        which = [torch.full((norm.num_features,), mask) for norm, mask in self.norms.items()]
        self.which = torch.cat([torch.zeros(0, dtype=torch.long), *which]).to(self.store.device)
        self.totals = torch.zeros(3, self.which.numel(), dtype=torch.float64, device=self.store.device)

    def _capture(self, shape: Shape) -> Replay:
        state = [self.schedule.at, self.totals]
        before = [tensor.clone() for tensor in state]

        def restore() -> None:
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)

        return Replay(partial(self._batch, shape), self.store.device, restore)

    def _batch(self, shape: Shape) -> None:
        batch = self.schedule.batch(shape)
        with autocast(self.store.device, self.precision):
            self.model(**batch.inputs)
        if self.norms:
            self._add(torch.stack([batch.inputs[name].sum() for name in MASKS]))
        self.schedule.at.add_(1)

    def _add(self, counts: Tensor) -> None:
        """Merge the moments of a batch into the totals (Chan, Golub and LeVeque)."""
        statistics = [(norm.running_mean, norm.running_var) for norm in self.norms]
        mean, variance = (torch.cat(parts).double() for parts in zip(*statistics, strict=True))
        n = torch.where(counts < 2, 0, counts).double()[self.which]
        total_n, total_mean, total_squares = self.totals
        share = n / (total_n + n).clamp(min=1)
        off = mean - total_mean
        total_squares += variance * (n - 1).clamp(min=0) + off.square() * total_n * share
        total_mean += off * share
        total_n += n
