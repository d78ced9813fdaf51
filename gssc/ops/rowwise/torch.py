"""What happens row by row with PyTorch's ops; dropout is quick on a CPU as well."""

import torch
import torch.nn.functional as F
from torch import Tensor

# Probabilities in this range are divided into 256 steps, so that eight random numbers fit into one draw of 64 bits;
# others into 65,536.
FEW_STEPS = (1 / 32, 31 / 32)


def dropout(x: Tensor, p: float, training: bool, residual: Tensor | None = None) -> Tensor:
    """Zero each entry with probability ``p`` and scale the others by 1 / (1 - p); then add ``residual``, if given.

    On a CPU PyTorch draws a number for every entry, which costs more than a layer's products. Here one draw serves
    eight entries: ``p`` is rounded up or down to a multiple of 1/256, at random so that an entry is dropped with
    probability ``p``, and the scale with it, so that the mean stays exact.
    """
    if not training or p == 0.0:
        return x if residual is None else residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        dropped = F.dropout(x, p, training)
        return dropped if residual is None else residual + dropped
    keep = dropout_mask(x, p)
    if residual is None:
        return x * keep
    return torch.addcmul(residual, x, keep) if residual.dtype == x.dtype else residual + x * keep


def dropout_mask(x: Tensor, p: float) -> Tensor:
    """Zero or the scale for every entry of x, on a CPU."""
    few = FEW_STEPS[0] <= p <= FEW_STEPS[1]
    steps, kind, together = (1 << 8, torch.int8, 8) if few else (1 << 16, torch.int16, 4)
    bits = torch.empty(1 - (-x.numel() // together), dtype=torch.int64).random_(-(2**63), None)
    dropped, rest = divmod(p * steps, 1.0)
    # The last draw rounds p: up with a probability of what is left of it.
    dropped = min(int(dropped) + (rest > 0.5 + bits[-1].item() / 2.0**64), steps - 1)
    # In place: comparisons that write booleans, and conversions of those, are not vectorised.
    keep = bits.view(kind)[: x.numel()].view(x.shape).ge_(dropped - steps // 2)
    return keep.to(x.dtype).mul_(steps / (steps - dropped))


def relu_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """drop(ReLU(x)), [N, C]."""
    return dropout(x.relu(), p, training)


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """X ⊙ (a + b log(1 + d)), [N, C]."""
    return x * torch.addcmul(scale, log_scale, torch.log1p(degree.to(x.dtype)).unsqueeze(1))
