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


class Origin(NamedTuple):
    """Where t, s and n come from: x [N, D], and weight [C, D] and bias [C] of the three Linears.

    The backward pass of the fused form then computes the three anew, in place of keeping them.
    """

    x: Tensor
    target_weight: Tensor
    target_bias: Tensor
    source_weight: Tensor
    source_bias: Tensor
    neighbor_weight: Tensor
    neighbor_bias: Tensor


class GatedOutput(NamedTuple):
    """Sums of messages [N, C], edges [E, C], and of the logits: their number [], mean [C], Σ (ℓ - mean)² [C].

    These three are zeros unless they were needed, and carry no gradient. The fused form also tells them as they are
    needed to move running statistics: mean and 1/√(variance + ε) in use, mean, Σ (ℓ - mean)², number [5, C].
    """

    nodes: Tensor
    edges: Tensor
    n: Tensor
    mean: Tensor
    squares: Tensor
    statistics: Tensor | None = None
