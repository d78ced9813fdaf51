"""What the kernels for small graphs are handed: memory in bundles, and what they know when they are compiled.

Row r of weights and statistics is that of replica r. A batch is ``graphs`` slots per replica; ``slots`` counts those of
all replicas. A tile [T, C] holds the nodes of the graph in a slot. Gradients are per slot, placed as the weights are.
"""

from types import SimpleNamespace
from typing import NamedTuple

from torch import Tensor


class Constants(SimpleNamespace):
    """Sizes, options, and where weights lie (-1: nowhere); equal ones share compiled kernels, which call it ``M``."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(vars(self).items()))


class Batch(NamedTuple):
    """The batch that a step is taken on, and all weights."""

    slots: Tensor  # [slots, 8]: number of the graph, first node, n, first entry of its bond matrix, key of dropout
    graphs: int
    params: Tensor  # [replicas, params_stride], weights
    grads: Tensor  # [slots, params_stride]
    params_stride: int  # from the weights or gradients of a replica or slot to those of the next
    running_stride: int


class Tables(NamedTuple):
    """What comes in every step: row ``at`` is for the one that is next."""

    at: Tensor  # [1]
    order: Tensor  # [steps, replicas, graphs], number of the graph in every slot
    keys: Tensor  # [steps, replicas], of dropout
    rates: Tensor  # [steps, 4]: learning rate, 1 / (1 - β1^t), 1 / sqrt(1 - β2^t), and one number more
    losses: Tensor  # [steps, replicas], written


class Norm(NamedTuple):
    """A BatchNorm."""

    weight: Tensor  # [replicas, params_stride], weight [C], then bias [C]
    running: Tensor  # [replicas, running_stride], mean [C], then variance [C]
    kept: Tensor  # [replicas, 2, C], mean and 1/deviation that it normalised by, for backward
    parts: Tensor  # [slots, 2, C], mean and sum of squared deviations of each graph


class Spectrum(NamedTuple):
    """φ of the eigenvalues."""

    states: Tensor  # [BLOCKS + 1, slots, KP, W]: before every block, and Φ
    phi: Tensor  # [slots, KP, W], the last of them
    d_phi: Tensor  # [layers, slots, KP, W], gradient of Φ by each layer


class Layer(NamedTuple):
    """A layer; weights and gains of the next follow, and memory of its norm ``glob`` follows that of ``local``."""

    weights: Tensor  # [replicas, params_stride], from those of this layer on
    grads: Tensor  # [slots, params_stride]
    before: Norm  # that ends the layer before; any in the first layer
    local: Norm
    glob: Norm
    after: Norm  # that ends this layer
    x: Tensor  # [slots, T, C], what the layer is given, up to the norm ``before``
    messages: Tensor  # [slots, T, C]
    mixed: Tensor  # [2, slots, T, C], local and global part up to their norms
    y: Tensor  # [slots, T, C], what the layer ends in, up to the norm ``after``
    gains: Tensor  # [slots, K] or [slots, K, C]
    self_gains: Tensor
    d_gains: Tensor
    d_self_gains: Tensor


class Backward(NamedTuple):
    """Gradients on their way through the layers, and the sums over each graph that the next norm needs."""

    dx: Tensor  # [2, slots, T, C], of a layer's output, in two parts
    dx_parts: Tensor  # [2, slots, 2, C]: sums of dx, of dx ⊙ x̂
    dh: Tensor  # [slots, T, C], of h
    dh_parts: Tensor  # [slots, 3, C]: sums of dh, of dh ⊙ â, of dh ⊙ b̂


class Sums(NamedTuple):
    """Gradients and losses of all slots, and their sums."""

    partial: Tensor  # [slots, params_stride]
    partial_losses: Tensor  # [slots]
    grads: Tensor  # [replicas, params_stride]
    squares: Tensor  # [replicas, blocks]
    now: Tensor  # [replicas, 8], for AdamW: a row of the rates, number of the step, whether the batch has two rows


class Moments(NamedTuple):
    """State of AdamW."""

    exp_avg: Tensor  # [replicas, params_stride]
    exp_avg_sq: Tensor
    steps: Tensor  # [replicas, tensors], the step of every parameter
