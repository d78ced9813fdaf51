"""AdamW (or Adam, where weight decay is L2), the learning rate as a function of the step, and averaged weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors

from gssc.config import OptimConfig


def learning_rate(config: OptimConfig, epoch: float, epochs: int) -> float:
    """Linear warm-up, then half a cosine to zero; ``epoch`` counts what is done, in fractions.

    The first step of a warm-up has a small positive rate: pass the position at the end of the step. The last step of
    all then has the rate zero, and changes nothing but statistics.
    """
    if epoch < config.warmup_epochs:
        return config.lr * epoch / config.warmup_epochs
    rest = max(epochs - config.warmup_epochs, 1)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * min((epoch - config.warmup_epochs) / rest, 1.0)))


class ClippingAdamW(torch.optim.AdamW):
    """``torch.optim.AdamW`` over one group of parameters that also limits the norm of their gradients."""

    def clip(self, limit: float) -> Tensor:
        """Scale the gradients down to a norm of ``limit``, where it is larger (0: nowhere); returns what it was."""
        return nn.utils.clip_grad_norm_(self.param_groups[0]["params"], limit or math.inf)


def make_optimizer(model: nn.Module, config: OptimConfig, lr: Tensor | None = None) -> ClippingAdamW:
    """PyTorch's fused AdamW over all parameters, its state allocated from the start.

    A learning rate on a GPU (a tensor) makes steps that can be captured as a CUDA graph. On a CPU the parameters of
    the model become views of one tensor.
    """
    parameters = list(model.parameters())
    kinds = {(parameter.device.type, parameter.dtype) for parameter in parameters}
    if lr is None and len(kinds) == 1 and parameters[0].device.type == "cpu":
        return FlatAdamW(parameters, config.lr, config.weight_decay, config.decay == "decoupled")
    capturable = lr is not None and parameters[0].device.type == "cuda"
    rate = config.lr if lr is None else lr
    optimizer = ClippingAdamW(parameters, rate, weight_decay=config.weight_decay, fused=True, capturable=capturable)
    optimizer.param_groups[0]["decoupled_weight_decay"] = config.decay == "decoupled"
    for parameter in parameters:
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        mean, square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        optimizer.state[parameter] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}
    return optimizer


class FlatAdamW(ClippingAdamW):
    """`ClippingAdamW` for a CPU, with the same state per parameter, in one fused kernel over all parameters.

    A model of ten layers has hundreds of small parameters, and what an optimiser does for each of them (count the step,
    take its norm, scale its gradient) costs a CPU more than the arithmetic. So parameters are moved into one tensor and
    stay views of it. Where one of them was moved elsewhere since, has no gradient or has taken fewer steps than others,
    each is treated on its own, as PyTorch does it. All are of one dtype.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float, decoupled: bool = True
    ) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=True)
        self.parameters = list(parameters)
        flat = torch.cat([parameter.detach().reshape(-1) for parameter in self.parameters])
        means, squares = torch.zeros_like(flat), torch.zeros_like(flat)
        self.steps = torch.zeros(len(self.parameters))
        sizes = [parameter.numel() for parameter in self.parameters]
        parts = zip(self.parameters, self.steps, *(t.split(sizes) for t in (flat, means, squares)), strict=True)
        for parameter, step, *pieces in parts:
            parameter.data, mean, square = (piece.view_as(parameter) for piece in pieces)
            self.state[parameter] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}
        self.places = [parameter.data_ptr() for parameter in self.parameters]
        self.whole = nn.Parameter(flat)
        self.as_one = torch.optim.AdamW([self.whole], weight_decay=weight_decay, fused=True)
        for optimizer in (self, self.as_one):
            optimizer.param_groups[0]["decoupled_weight_decay"] = decoupled
        self.as_one.state[self.whole] = {"step": torch.zeros(()), "exp_avg": means, "exp_avg_sq": squares}

    def clip(self, limit: float) -> Tensor:
        """As `ClippingAdamW.clip`; the next `step` takes the scaled gradients."""
        self.whole.grad = None
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        in_place = [parameter.data_ptr() for parameter in self.parameters] == self.places
        if len(gradients) < len(self.parameters) or not in_place or bool((self.steps != self.steps[0]).any()):
            return super().clip(limit)
        gradient: Tensor = _flatten_dense_tensors(gradients)
        norm = torch.linalg.vector_norm(gradient)
        # As clip_grad_norm_ does it.
        self.whole.grad = gradient.mul_(torch.clamp((limit or math.inf) / (norm + 1e-6), max=1.0))
        return norm

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update the parameters, by clipped gradients where `clip` was called since the gradients were made."""
        if closure is not None or self.whole.grad is None:
            return super().step(closure)
        self.as_one.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.as_one.state[self.whole]["step"].copy_(self.steps[0])
        self.as_one.step()
        self.steps.add_(1)
        self.whole.grad = None
        return None

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.whole.grad = None
        super().zero_grad(set_to_none)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, ``parameter/entry``."""
    return {
        f"{name}/{entry}": value
        for name, parameter in model.named_parameters()
        for entry, value in optimizer.state[parameter].items()
    }


@torch.no_grad()
def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The reverse of `optimizer_tensors`, in place."""
    for name, value in optimizer_tensors(model, optimizer).items():
        value.copy_(tensors[name])


class Average:
    """An exponential moving average of weights, in ``weights`` by name.

    The decay grows from 0.1 towards ``decay`` over the first steps, (1 + t) / (10 + t), so that the start is forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: value.detach().clone() for name, value in model.named_parameters()}
        # On the device, so that an update can be captured.
        self.steps = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take a step of the optimiser into account, in a few launches whatever the number of weights."""
        self.steps += 1
        averages, new = list(self.weights.values()), [parameter.detach() for parameter in model.parameters()]
        change = (1.0 - torch.clamp((1 + self.steps) / (10 + self.steps), max=self.decay)).to(new[0].dtype)
        torch._foreach_mul_(averages, 1.0 - change)
        torch._foreach_add_(averages, torch._foreach_mul(new, change))

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Go on from here, in place."""
        for name, value in self.weights.items():
            value.copy_(weights[name])
        self.steps.fill_(steps)
