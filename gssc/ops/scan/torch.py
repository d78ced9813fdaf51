"""The selective scan by doubling: log₂ n passes, each over all nodes at once.

Two steps h -> a h + b and then h -> a' h + b' are one, h -> a'a h + (a'b + b'). Pass i joins every position with the
one 2^i before it; where a graph begins a = 0, so that nothing comes from the graph before. Its derivative is the same
recurrence from the other end, so it can be differentiated any number of times. Stores [N, E, S].
"""

from typing import Any

import torch
from torch import Tensor


class Recurrence(torch.autograd.Function):
    """h_t = a_t ⊙ h_{t-1} + b_t, from h = 0: [N, ...] -> [N, ...]."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        decay, h, shift = a, b, 1
        while shift < a.shape[0]:
            h = torch.cat([h[:shift], torch.addcmul(h[shift:], decay[shift:], h[:-shift])])
            decay = torch.cat([decay[:shift], decay[shift:] * decay[:-shift]])
            shift *= 2
        ctx.save_for_backward(a, h)
        return h.clone() if h is b else h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        a, h = ctx.saved_tensors
        none = torch.zeros_like(a[:1])
        g = Recurrence.apply(torch.cat([a[1:], none]).flip(0), grad.flip(0)).flip(0)
        return g * torch.cat([none, h[:-1]]), g


def selective_scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor) -> Tensor:
    """Arguments as in ``gssc.ops.scan``."""
    if not u.numel():
        return u.clone()
    decay = torch.exp(delta.unsqueeze(2) * a).masked_fill(beginnings(ptr, u.shape[0])[:, None, None], 0.0)
    h = Recurrence.apply(decay, (delta * u).unsqueeze(2) * b.unsqueeze(1))
    return (h * c.unsqueeze(1)).sum(2)


def beginnings(ptr: Tensor, nodes: int) -> Tensor:
    """Which nodes are the first of their graph, [N], without a look at ``ptr`` from the host."""
    return torch.zeros(nodes + 1, dtype=torch.bool, device=ptr.device).index_fill_(0, ptr, True)[:nodes]
