"""Gradients by PyTorch's own derivatives, for backward passes that are themselves differentiated."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gssc.ops.apart import apart


def composed_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Any], needed: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of ``function(*inputs)`` for the inputs that need one, themselves differentiable; None for others."""
    with torch.enable_grad():
        own = apart(inputs)
        leaves = [value for value, need in zip(own, needed, strict=True) if need]
        found = torch.autograd.grad(function(*own), leaves, grad, create_graph=True, allow_unused=True)
    given = iter(found)
    return tuple(next(given) if need else None for need in needed)
