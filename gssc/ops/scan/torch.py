"""The recurrence by doubling: log₂ N passes, each over all rows at once.

Steps h -> a h + b and then h -> a' h + b' are one, h -> a'a h + (a'b + b'). Pass i joins rows that are 2^i apart.
"""

import torch
from torch import Tensor


def recurrence(a: Tensor, b: Tensor, backwards: bool) -> Tensor:
    """Arguments as in ``gssc.ops.scan``."""
    decay, h, shift = a, b.clone(), 1
    if backwards:
        decay, h = torch.roll(a, -1, 0).flip(0), b.flip(0)
    while shift < a.shape[0] and bool(decay[shift:].any()):  # ends where graphs do
        h = torch.cat([h[:shift], torch.addcmul(h[shift:], decay[shift:], h[:-shift])])
        decay = torch.cat([decay[:shift], decay[shift:] * decay[:-shift]])
        shift *= 2
    return h.flip(0) if backwards else h
