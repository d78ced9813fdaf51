"""Memory that the kernels for small graphs work in."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.molecules.arguments import Backward, Spectrum, Sums, Tables
from gssc.molecules.data import MoleculeData
from gssc.molecules.supported import MAX_NODES
from gssc.ops.triton_support import power_of_two

if TYPE_CHECKING:
    from gssc.molecules.model import MoleculeModel

SUM_BLOCK = 256  # parameters whose gradients one program adds up


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

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

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

    def take_in_order(self) -> int:
        """Put all graphs in their order into the batches to come; how many of these there are."""
        batches = -(-self.data.num_graphs // self.graphs)
        order = torch.arange(batches * self.graphs).clamp(max=self.data.num_graphs)
        self.tables.order[:batches] = order.view(batches, 1, self.graphs).to(self.data.ptr.device)
        self.tables.at.zero_()
        return batches
