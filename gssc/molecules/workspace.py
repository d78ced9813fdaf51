"""What the kernels for small graphs are handed: memory in bundles, and what they know when they are compiled.

Row r of weights and statistics is that of replica r. A batch is ``graphs`` slots per replica; ``slots`` counts those of
all replicas. A tile [T, C] holds the nodes of the graph in a slot. Gradients are per slot, placed as the weights are.
"""

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.molecules.data import MoleculeData
from gssc.molecules.supported import MAX_NODES
from gssc.ops.triton_support import power_of_two

if TYPE_CHECKING:
    from gssc.molecules.model import MoleculeModel

SUM_BLOCK = 256  # parameters whose gradients one program adds up


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


class AdamState(NamedTuple):
    """State of AdamW."""

    exp_avg: Tensor  # [replicas, params_stride]
    exp_avg_sq: Tensor
    steps: Tensor  # [replicas, tensors], the step of every parameter


class Workspace:
    """Scratch memory for batches of ``graphs`` slots per replica, and the tables that say what is in them.

    In training it keeps what backward needs; otherwise layers share their memory, and the outputs go to ``raw``, by
    number of graph. The tables have a row for every one of so many steps.
    """

    def __init__(self, model: "MoleculeModel", data: MoleculeData, graphs: int, steps: int, training: bool) -> None:
        if data.most_nodes > MAX_NODES:
            fail("data", f"graphs of at most {MAX_NODES} nodes", data.most_nodes)
        self.data, self.graphs, self.training = data, graphs, training
        device, replicas, channels = data.ptr.device, model.replicas, model.channels
        self.slots_count = slots = replicas * graphs
        self.tile, self.frequencies = power_of_two(data.most_nodes, 16), data.eigvals.shape[1]
        self.kp, self.sp = power_of_two(self.frequencies, 32), power_of_two(data.rwse.shape[1], 32)
        empty, zeros = partial(torch.empty, device=device), partial(torch.zeros, device=device)
        self.tables = Tables(
            at=zeros(1, dtype=torch.long),
            order=torch.full((steps, replicas, graphs), data.num_graphs, device=device),
            keys=zeros(steps, replicas, dtype=torch.long),
            rates=zeros(steps, 4),
            losses=zeros(steps, replicas),
        )
        self.raw = zeros(replicas, data.num_graphs + 1, data.targets.shape[1])
        # Forward.
        self.slots = zeros(slots, 8, dtype=torch.long)
        layers, tile = model.layers if training else 1, (slots, self.tile, channels)
        self.y, self.y_parts = empty(layers + 1, *tile), empty(layers + 1, slots, 2, channels)
        self.mixed, self.mixed_parts = empty(layers, 2, *tile), empty(layers, 2, slots, 2, channels)
        self.messages = empty(layers, *tile)
        self.kept, self.kept_walks = empty(layers, 3, replicas, 2, channels), empty(replicas, 2, self.sp)
        gains = (model.layers, slots, self.frequencies if model.shared else self.frequencies * channels)
        self.gains, self.self_gains = empty(*gains), empty(*gains)
        # Backward.
        once, lots = (1, slots) if training else (0, 0)
        parts = empty(2 * once, slots, 2, channels)
        self.back = Backward(empty(2 * once, *tile), parts, empty(lots, *tile[1:]), empty(lots, 3, channels))
        self.d_gains, self.d_self_gains = empty(once * gains[0], *gains[1:]), empty(once * gains[0], *gains[1:])
        phi = (slots, self.kp, model.phi_channels)
        states = empty(model.blocks + 1, *phi)
        self.spectrum = Spectrum(states, states[-1], empty(once * layers, *phi))
        self.sums = Sums(
            partial=empty(max(lots, 1), model.flat.stride),  # parts of it are aligned alike, for the same kernels
            partial_losses=empty(lots),
            grads=zeros(once * replicas, model.flat.stride),
            squares=empty(once * replicas, -(-model.flat.used // SUM_BLOCK)),
            now=empty(once * replicas, 8),
        )

    def take_in_order(self) -> None:
        """Put all graphs in their order into the batches of the tables; the first is next."""
        order = torch.arange(len(self.tables.order) * self.graphs).clamp(max=self.data.num_graphs)
        self.tables.order.copy_(order.view(-1, 1, self.graphs))
        self.tables.at.zero_()
