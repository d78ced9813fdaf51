"""Arguments that all forms of the op share."""

from typing import NamedTuple

from torch import Tensor


class Branch(NamedTuple):
    """What is normalised, and the state of its batch normalisation.

    ``rows`` [N, C]; γ, β, running mean and variance [C], and the number of batches they have seen [], as
    ``nn.BatchNorm1d`` holds them; the last three move on in training.
    """

    rows: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor
    batches: Tensor
    dropout: float = 0.0
    residual: bool = True  # whether x, where it is given, is added


class Form(NamedTuple):
    """How the op is meant: which statistics count, how fast running ones move, where dropout and ReLU stand."""

    training: bool
    momentum: float | None = 0.1  # None: the running statistics are the mean over all batches
    eps: float = 1e-5
    activation: bool = False
    site: int = 0
