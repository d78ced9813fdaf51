"""Arguments and results that all forms of the op share."""

from typing import NamedTuple

from torch import Tensor


class EdgeNorm(NamedTuple):
    """Batch normalisation of the logits: γ, β, running mean and variance, all [C].

    With ``training`` the statistics are those of the edges (of the real ones where there is a mask), and the running
    ones only where there are fewer than two; updating them is up to the caller, who is told the moments.
    """

    scale: Tensor
    shift: Tensor
    mean: Tensor
    variance: Tensor
    eps: float
    training: bool


class GatedOutput(NamedTuple):
    """Sums of messages [N, C], edges [E, C], and of the logits: their number [], mean [C], Σ (ℓ - mean)² [C].

    The last three are zeros unless they were needed, and carry no gradient.
    """

    nodes: Tensor
    edges: Tensor
    n: Tensor
    mean: Tensor
    squares: Tensor
