"""AdamW, the learning rate as a function of the step, and averaged weights."""

import math

import torch
from torch import Tensor, nn

from gssc.config import OptimConfig


def learning_rate(config: OptimConfig, epoch: float, epochs: int) -> float:
    """Linear warm-up, then half a cosine to zero; ``epoch`` counts what is done, in fractions.

    The first step of a warm-up has a small positive rate: pass the position at the end of the step.
    """
    if epoch < config.warmup_epochs:
        return config.lr * epoch / config.warmup_epochs
    rest = max(epochs - config.warmup_epochs, 1)
    return config.lr * 0.5 * (1.0 + math.cos(math.pi * min((epoch - config.warmup_epochs) / rest, 1.0)))


def make_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW over all parameters."""
    return torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as named tensors, ``parameter/entry``."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for entry, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{entry}"] = value if isinstance(value, Tensor) else torch.tensor(value)
    return tensors


def load_optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The reverse of `optimizer_tensors`."""
    for name, parameter in model.named_parameters():
        state = {key.rpartition("/")[2]: value for key, value in tensors.items() if key.rpartition("/")[0] == name}
        if state:
            # The step counter of AdamW stays on the CPU, unless fused or capturable.
            optimizer.state[parameter] = {
                entry: value.clone() if entry == "step" else value.to(parameter.device, copy=True)
                for entry, value in state.items()
            }


class Average:
    """An exponential moving average of weights; buffers such as running statistics are taken as they are.

    The decay grows from 0.1 towards ``decay`` over the first steps, (1 + t) / (10 + t), so that the start is forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        self.averaged = {name for name, _ in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take a step of the optimiser into account."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, value in model.state_dict().items():
            if name in self.averaged:
                self.state[name].lerp_(value, 1.0 - decay)
            else:
                self.state[name].copy_(value)
