"""Dropout that is quick on a CPU as well."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Steps into which a probability is divided: four random numbers fit into one draw of 64 bits.
STEPS = 1 << 16


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero each entry with probability ``p`` and scale the others by 1 / (1 - p).

    On a CPU PyTorch draws a number for every entry, which costs more than a layer's products. Here one draw serves four
    entries; ``p`` is rounded to a multiple of 2⁻¹⁶, and the scale with it, so that the mean stays exact.
    """
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.dropout(x, p, training)
    dropped = min(round(p * STEPS), STEPS - 1)
    bits = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),), dtype=torch.int64)
    keep = bits.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - STEPS // 2
    return x * keep.to(x.dtype).mul_(STEPS / (STEPS - dropped))


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
