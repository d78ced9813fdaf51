"""Normalisation of node and edge features."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice

NormName = Literal["batch", "layer", "none"]
NORMS = ("batch", "layer", "none")


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of rows [N, C] for batches of any size.

    One row has no variance and no row no mean: there, PyTorch raises or writes NaN into the running statistics. Here
    such a batch is normalised by the running statistics, which it leaves alone.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] < 2:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


def make_norm(name: NormName, channels: int) -> nn.Module:
    """``"batch"``, ``"layer"`` or ``"none"`` for rows of ``channels``."""
    check_choice("norm", name, NORMS)
    if name == "batch":
        return BatchNorm(channels)
    return nn.LayerNorm(channels) if name == "layer" else nn.Identity()
