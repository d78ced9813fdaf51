"""Dropout that is quick on a CPU as well."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Steps into which a probability is divided: four random numbers fit into one draw of 64 bits.
STEPS = 1 << 16


def dropout(x: Tensor, p: float, training: bool, residual: Tensor | None = None) -> Tensor:
    """Zero each entry with probability ``p`` and scale the others by 1 / (1 - p); then add ``residual``, if given.

    On a CPU PyTorch draws a number for every entry, which costs more than a layer's products. Here one draw serves four
    entries; ``p`` is rounded to a multiple of 2⁻¹⁶, and the scale with it, so that the mean stays exact.
    """
    if not training or p == 0.0:
        return x if residual is None else residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        dropped = F.dropout(x, p, training)
        return dropped if residual is None else residual + dropped
    keep = _kept(x, p)
    if residual is None:
        return x * keep
    return torch.addcmul(residual, x, keep) if residual.dtype == x.dtype else residual + x * keep


def _kept(x: Tensor, p: float) -> Tensor:
    """Zero or the scale for every entry of x."""
    dropped = min(round(p * STEPS), STEPS - 1)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    # In place: comparisons that write booleans, and conversions of those, are not vectorised.
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape).ge_(dropped - STEPS // 2)
    return keep.to(x.dtype).mul_(STEPS / (STEPS - dropped))


class Dropout(nn.Module):
    """`dropout` as a module.

    Args:
        p: Probability of zeroing an entry.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
