"""Inputs of an op apart from one another, for gradients that are themselves differentiated."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor


def apart(inputs: Iterable[Any]) -> list[Any]:
    """A view of every tensor, other values as they are.

    A backward pass that composes its gradients with ``torch.autograd.grad`` must ask for those of the views. Inputs may
    depend on each other (x and what a layer made of x, weights used twice): asked for the inputs themselves, autograd
    would follow the graph from one into the other and count that path twice.
    """
    return [value.view_as(value) if isinstance(value, Tensor) else value for value in inputs]
