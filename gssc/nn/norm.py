"""Normalisation of node and edge features, also of padded batches and of batches spread over processes."""

from typing import Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_shape, fail
from gssc.nn.moments import Moments, moments_over_ranks, row_moments

NormName = Literal["batch", "layer", "none"]
NORMS = ("batch", "layer", "none")


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of rows [N, C] for batches of any size, padded or not, in one process or in several.

    One row has no variance and no row no mean: there, PyTorch raises or writes NaN into the running statistics. Here
    such a batch is normalised by the running statistics, which it leaves alone.

    With ``mask`` [N] (True = real) the statistics are those of the real rows, and the others become zero: what stands
    in them reaches nothing. The number of real rows is never read by the host. After ``synchronize_batch_norms`` the
    statistics are those of the rows of all processes. Names and shapes in the state are those of ``nn.BatchNorm1d``.
    """

    synchronized = False
    process_group: dist.ProcessGroup | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is not None:
            check_shape("mask", mask, x.shape[0])
        spread = self.synchronized and dist.get_world_size(self.process_group) > 1
        if self.training and (mask is not None or spread):
            out = self._normalize_by_batch(x, mask, spread)
        elif self.training and x.shape[0] < 2:
            out = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        else:
            out = super().forward(x)
        return out if mask is None else torch.where(mask.unsqueeze(1), out, 0.0)

    def _normalize_by_batch(self, x: Tensor, mask: Tensor | None, spread: bool) -> Tensor:
        """Like F.batch_norm(training=True), from moments whose count is a tensor. Half precision sums in float32."""
        if self.running_mean is None or self.running_var is None:
            fail("track_running_stats", "True, for masked or synchronised statistics", False)
        rows = x.to(torch.promote_types(x.dtype, torch.float32))
        moments = row_moments(rows, mask)
        if spread:
            moments = moments_over_ranks(moments, self.process_group)
        enough = moments.n >= 2
        self._update_running_statistics(moments, enough)
        mean = torch.where(enough, moments.mean, self.running_mean)
        var = torch.where(enough, moments.squares / moments.n.clamp(min=1), self.running_var)
        scale = torch.rsqrt(var + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        out = (rows - mean) * scale
        return (out if self.bias is None else out + self.bias).to(x.dtype)

    @torch.no_grad()
    def _update_running_statistics(self, moments: Moments, enough: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(enough)
        step = 1.0 / self.num_batches_tracked.clamp(min=1) if self.momentum is None else self.momentum
        unbiased = moments.squares / (moments.n - 1).clamp(min=1)
        for running, batch in ((self.running_mean, moments.mean), (self.running_var, unbiased)):
            running.copy_(torch.where(enough, (1 - step) * running + step * batch, running))


def make_norm(name: NormName, channels: int) -> nn.Module:
    """``"batch"``, ``"layer"`` or ``"none"`` for rows of ``channels``."""
    check_choice("norm", name, NORMS)
    if name == "batch":
        return BatchNorm(channels)
    return nn.LayerNorm(channels) if name == "layer" else nn.Identity()


def apply_norm(norm: nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    """``norm(x)``; one that looks at other rows is told which of them are real."""
    return norm(x, mask) if isinstance(norm, BatchNorm) else norm(x)
