"""AdamW for a CPU: parameters and moments are slices of flat tensors, so that a step is a few long operations.

A model of ten layers has hundreds of small parameters, and what an optimiser does for each of them (count the step,
take its norm, scale its gradient) costs a CPU more than the arithmetic.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors


class FlatAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW``, with the same state per parameter, in one fused kernel over all parameters.

    Parameters are moved into one tensor and stay views of it. Where one of them was moved elsewhere since, has no
    gradient or has taken fewer steps than others, each is treated on its own, as PyTorch does it.

    Args:
        parameters: Parameters of one dtype on the CPU.
        lr: Learning rate; later that of ``param_groups[0]``.
        weight_decay: Weight decay.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=True)
        self.parameters = list(parameters)
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        means, squares = torch.zeros_like(flat), torch.zeros_like(flat)
        self.steps = torch.zeros(len(self.parameters))
        ends = list(accumulate(parameter.numel() for parameter in self.parameters))
        for number, (parameter, end) in enumerate(zip(self.parameters, ends, strict=True)):
            own = slice(end - parameter.numel(), end)
            parameter.data = flat[own].view_as(parameter)
            self.state[parameter] = {
                "step": self.steps[number],
                "exp_avg": means[own].view_as(parameter),
                "exp_avg_sq": squares[own].view_as(parameter),
            }
        self.places = [parameter.data_ptr() for parameter in self.parameters]
        self.whole = nn.Parameter(flat)
        self.as_one = torch.optim.AdamW([self.whole], weight_decay=weight_decay, fused=True)
        self.as_one.state[self.whole] = {"step": torch.zeros(()), "exp_avg": means, "exp_avg_sq": squares}

    def clip(self, max_norm: float) -> Tensor:
        """Scale all gradients, if need be, so that their norm is at most ``max_norm``; returns what it was.

        The next `step` takes the scaled gradients.
        """
        self.whole.grad = None
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if len(gradients) < len(self.parameters) or not self._in_place():
            return nn.utils.clip_grad_norm_(self.parameters, max_norm)
        gradient: Tensor = _flatten_dense_tensors(gradients)
        norm = torch.linalg.vector_norm(gradient)
        # As clip_grad_norm_ does it.
        self.whole.grad = gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        return norm

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update the parameters, by clipped gradients where `clip` was called since the gradients were made."""
        if closure is not None or self.whole.grad is None:
            return super().step(closure)
        settings = self.as_one.param_groups[0]
        settings["lr"] = self.param_groups[0]["lr"]
        self.as_one.state[self.whole]["step"].copy_(self.steps[0])
        self.as_one.step()
        self.steps.add_(1)
        self.whole.grad = None
        return None

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.whole.grad = None
        if not set_to_none:
            return super().zero_grad(set_to_none)
        for parameter in self.parameters:
            parameter.grad = None
        return None

    def _in_place(self) -> bool:
        """Whether every parameter is still where it was put, and has taken as many steps as the others."""
        where = [parameter.data_ptr() for parameter in self.parameters]
        return where == self.places and bool((self.steps == self.steps[0]).all())
