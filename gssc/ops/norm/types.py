"""What all forms of the op share."""

from typing import NamedTuple

from torch import Tensor, nn


class NormState(NamedTuple):
    """A batch normalisation as kernels need it.

    γ, β, running mean and variance [C], and the number of batches that these have seen [], as ``nn.BatchNorm1d`` holds
    them; the last three move on in training.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor
    eps: float = 1e-5
    momentum: float | None = 0.1  # None: the running statistics are the mean over all batches
    training: bool = True


class Branch(NamedTuple):
    """What is normalised, rows [N, C], and by what.

    ``norm`` is a module, called with the rows (and the mask, if it is a `gssc.nn.BatchNorm`) unless `norm_state` tells
    its numbers; or such a state itself.
    """

    rows: Tensor
    norm: nn.Module | NormState
    dropout: float = 0.0
    residual: bool = True  # whether x, where it is given, is added
