"""Gradients by PyTorch's own derivatives, for backward passes that are themselves differentiated."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def composed_gradients(
    function: Callable[..., Tensor], inputs: Sequence[Any], needed: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of ``function(*inputs)`` for the inputs that need one, themselves differentiable; None for others."""
    leaves = [value for value, need in zip(inputs, needed, strict=True) if need]
    with torch.enable_grad():
        found = torch.autograd.grad(function(*inputs), leaves, grad, create_graph=True, allow_unused=True)
    given = iter(found)
    return tuple(next(given) if need else None for need in needed)
