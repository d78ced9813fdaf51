"""`GSSC` on batches of small graphs through the fused kernels: which is launched when, on what."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gssc.checks import check_choice, fail
from gssc.model import GSSC
from gssc.nn.molecule_layout import FlatModels, bond_types, categories
from gssc.ops.molecule_layer.data import MAX_NODES, MoleculeData

PRECISIONS = ("tf32", "tf32x3", "ieee")
SALTS = 4  # dropouts of a layer
BLOCK, ADAM_BLOCK, CHUNK = 256, 1024, 32


@dataclass(frozen=True)
class Warps:
    """Warps per program of each kernel."""

    mix_forward: int = 4
    ffn_forward: int = 4
    ffn_backward: int = 8
    mix_backward: int = 4
    phi: int = 4
    gains: int = 4
    ends: int = 4
    step: int = 4


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest power of two that is at least ``number`` and at least ``least``."""
    return max(least, 1 << max(number - 1, 0).bit_length())


class Workspace:
    """Scratch memory for batches of ``graphs`` slots per replica, and the tables that say what is in them.

    Args:
        models: The models.
        data: The graphs.
        graphs: Slots of a batch, per replica.
        steps: Rows of the tables.
        training: Keep what backward needs; otherwise layers share their memory.
    """

    def __init__(self, models: "MoleculeModel", data: MoleculeData, graphs: int, steps: int, training: bool) -> None:
        if data.most_nodes > MAX_NODES:
            fail("data", f"graphs of at most {MAX_NODES} nodes", data.most_nodes)
        self.data, self.graphs, self.training = data, graphs, training
        device, replicas, channels = data.ptr.device, models.replicas, models.channels
        self.tile = power_of_two(data.most_nodes, 16)
        slots, layers = replicas * graphs, len(models.first.layers) if training else 1
        self.slots_count = slots
        self.frequencies = data.eigvals.shape[1]
        self.kp, self.sp = power_of_two(self.frequencies, 32), power_of_two(data.rwse.shape[1], 32)
        width = self.frequencies if models.shared else self.frequencies * channels

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        # Tables, filled by whoever runs steps.
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.order = torch.full((steps, replicas, graphs), data.num_graphs, device=device)
        self.keys = torch.zeros(steps, replicas, dtype=torch.long, device=device)
        self.table, self.losses = torch.zeros(steps, 4, device=device), torch.zeros(steps, replicas, device=device)
        self.raw = torch.zeros(replicas, data.num_graphs + 1, data.targets.shape[1], device=device)
        # Forward.
        self.slots = torch.zeros(slots, 8, dtype=torch.long, device=device)
        tile = (slots, self.tile, channels)
        self.y, self.y_parts = empty(layers + 1, *tile), empty(layers + 1, slots, 2, channels)
        self.mixed, self.mixed_parts = empty(layers, 2, *tile), empty(layers, 2, slots, 2, channels)
        self.messages = empty(layers, *tile)
        self.kept = empty(layers, 3, replicas, 2, channels)
        self.kept_walks = empty(replicas, 2, self.sp)
        self.states = empty(models.blocks + 1, slots, self.kp, models.phi_channels)
        self.gains = empty(len(models.first.layers), slots, width)
        self.self_gains = empty(len(models.first.layers), slots, width)
        if not training:
            return
        # Backward.
        self.grads_of_slots = empty(slots, models.flat.stride)
        self.losses_of_slots = empty(slots)
        self.dx, self.dx_parts = empty(2, *tile), empty(2, slots, 2, channels)
        self.dh, self.dh_parts = empty(*tile), empty(slots, 3, channels)
        self.d_gains, self.d_self_gains = torch.empty_like(self.gains), torch.empty_like(self.self_gains)
        self.d_phi = empty(layers, slots, self.kp, models.phi_channels)
        self.grads = torch.zeros_like(models.flat.params)
        self.squares = empty(replicas, -(-models.flat.used // BLOCK))
        self.now = empty(replicas, 8)

    def scratch(self) -> list[Tensor]:
        """Memory whose content means nothing between steps."""
        tables = {"at", "order", "keys", "table", "losses", "raw"}
        kept = [value for name, value in vars(self).items() if isinstance(value, Tensor) and name not in tables]
        return [value for value in kept if value.is_floating_point()]


@dataclass
class Moments:
    """State of AdamW, like the parameters."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor = field(default_factory=lambda: torch.zeros(0))  # [replicas, tensors]


class MoleculeModel:
    """R models of one kind (R = 1: one) on batches of small graphs: a layer is two kernels forward, two backward.

    The models keep their parameters and statistics, as views of flat memory: what changes here changes there.

    Args:
        models: The models; their weights may differ, nothing else.
        precision: How matrices are multiplied: ``"tf32"``, ``"tf32x3"`` (nearly float32) or ``"ieee"``.
        squared: Squared instead of absolute error as the loss.
        warps: Warps per program.
    """

    def __init__(
        self, models: Sequence[GSSC], precision: str = "tf32", squared: bool = False, warps: Warps | None = None
    ) -> None:
        check_choice("precision", precision, PRECISIONS)
        self.flat = FlatModels(models)
        self.first: Any = models[0]
        self.replicas, self.precision, self.warps = len(models), precision, warps or Warps()
        first, layer = self.first, self.first.layers[0]
        self.channels, self.phi_channels, self.blocks = layer.channels, first.phi.channels, len(first.phi.pool)
        self.shared, self.loss = layer.glob.kernel == "shared", int(squared)
        self.dropouts = (layer.dropout_local, layer.dropout_global, layer.feed_forward[2].p)
        self.constants = self._constants()

    def _constants(self) -> dict[str, dict[str, Any]]:
        """What each kernel has to know when it is compiled."""
        at, inside, model = self.flat.offsets, self.flat.layer, self.first

        def where(name: str) -> int:
            return inside.get(name, -1)

        glob = {"LIN_O": where("glob.lin_o.weight"), "LIN_S": where("glob.lin_s.weight")}
        glob |= {"LIN_OUT": where("glob.lin_out.weight"), "DEGREE": where("glob.degree_scale")}
        local = {"LOCAL_1": where("local.nn.0.weight"), "LOCAL_2": where("local.nn.2.weight")}
        norms = {"NORM_LOCAL": where("norm_local.weight"), "NORM_GLOBAL": where("norm_global.weight")}
        ffn = {"FFN_1": where("feed_forward.0.weight"), "FFN_2": where("feed_forward.3.weight")}
        gains = {f"LIN_{name.upper()}": where(f"glob.lin_{name}.weight") for name in ("q", "k", "sq", "sk")}
        gains |= {"LAYER": self.flat.layer_stride, "SHARED": self.shared}
        edges = {"EDGES": model.edge_encoder is not None, "SHARED": self.shared, "BONDS": bond_types(model)}
        walks = model.rwse_encoder
        ends = {"EMBED": at["node_encoder.embeddings.0.weight"], "COLUMNS": len(categories(model))}
        ends |= {"D": model.node_encoder.embeddings[0].embedding_dim, "S": walks.norm.num_features if walks else 0}
        ends |= {"WALK_NORM": at.get("rwse_encoder.norm.weight", 0)}
        ends |= {"WALK_LINEAR": at.get("rwse_encoder.linear.weight", 0)}
        head = {f"HEAD_{i + 1}": at[f"head.mlp.{2 * i}.weight"] for i in range(3)}
        outputs = model.head.mlp[-1].out_features
        head |= {"MEAN": model.head.pool == "mean", "LOSS": self.loss, "O": outputs, "OP": power_of_two(outputs)}
        total = sum(categories(model))
        return {
            "mix_forward": local | glob | edges,
            "ffn_forward": norms | ffn,
            "ffn_backward": norms | ffn | {"NORM_FFN": where("norm_ffn.weight")},
            "mix_backward": local | norms | glob | edges,
            "gains": gains,
            "encode_forward": ends,
            "encode_backward": ends | {"V": total, "VP": power_of_two(total, 32)},
            "head": head,
        }

    def forward(self, work: Workspace) -> None:
        """All that is before the loss; then head, loss and their gradients in training, outputs in ``raw`` else."""
        from gssc.ops.molecule_layer.kernels.ends import encode_forward, head_kernel
        from gssc.ops.molecule_layer.kernels.forward import ffn_forward, mix_forward
        from gssc.ops.molecule_layer.kernels.spectrum import gains_forward, phi_forward

        flat, data, training = self.flat, work.data, int(work.training)
        grid, graphs, layers = work.slots_count, work.graphs, len(self.first.layers)
        sizes = {"T": work.tile, "C": self.channels}
        of_k = {"K": work.frequencies, "KP": work.kp}
        rows = {"PARAMS": flat.stride, "CHUNK": CHUNK}
        exact = {"PRECISION": self.precision}
        stats = {"RUNNING": flat.running.shape[1]}
        y, y_parts, mixed, mixed_parts, messages, kept = (
            getattr(work, name) for name in ("y", "y_parts", "mixed", "mixed_parts", "messages", "kept")
        )
        encode_forward[(grid,)](
            work.at, work.order, work.keys, data.ptr, data.bond_ptr, data.nodes, data.rwse, data.rwse_moments,
            work.slots, flat.params, flat.running[:, 6 * self.channels * layers :], work.kept_walks, y[0],
            graphs, training, **self.constants["encode_forward"], **sizes, **rows, **exact, **stats, SP=work.sp,
            num_warps=self.warps.ends,
        )  # fmt: skip
        phi_at = flat.params[:, flat.offsets["phi.embed.0.weight"] :]
        phi = {"PARAMS": flat.stride, "W": self.phi_channels} | of_k | exact
        phi_forward[(grid,)](
            work.slots, phi_at, data.eigvals, data.eigmask, work.states, graphs, BLOCKS=self.blocks, **phi,
            num_warps=self.warps.phi,
        )  # fmt: skip
        gains_forward[(grid, layers)](
            flat.params, work.states[-1], work.gains, work.self_gains, graphs, **self.constants["gains"], **phi,
            C=self.channels, num_warps=self.warps.gains,
        )  # fmt: skip
        p_local, p_global, p_ffn = self.dropouts if work.training else (0.0, 0.0, 0.0)
        for layer in range(layers):
            now, before = (layer, max(layer - 1, 0)) if work.training else (0, 0)
            out = layer + 1 if work.training else 0
            into = layer if work.training else 0
            weights = flat.params[:, layer * flat.layer_stride :]
            mix_forward[(grid, 2)](
                work.slots, weights, self._edges(flat.params), self._norm_before(layer),
                self._running(max(layer - 1, 0), 2), kept[before, 2], y_parts[into],
                data.bonds, data.vectors, data.log_degree, work.gains[layer], work.self_gains[layer],
                y[into], messages[now], mixed[now], mixed_parts[now],
                graphs, layer * SALTS, int(layer > 0), training, p_local, p_global,
                **self.constants["mix_forward"], **sizes, **of_k, **rows, **exact, **stats,
                num_warps=self.warps.mix_forward,
            )  # fmt: skip
            ffn_forward[(grid,)](
                work.slots, weights, self._running(layer, 0), kept[now], mixed[now], mixed_parts[now],
                y[out], y_parts[out], graphs, layer * SALTS, training, p_ffn,
                **self.constants["ffn_forward"], **sizes, **rows, **exact, **stats,
                num_warps=self.warps.ffn_forward,
            )  # fmt: skip
        out = layers if work.training else 0
        backward = [work.grads_of_slots, work.losses_of_slots, work.dx, work.dx_parts] if work.training else [y] * 4
        head_kernel[(grid,)](
            work.slots, flat.params, backward[0], self._norm_before(layers), self._running(layers - 1, 2),
            kept[-1, 2], y_parts[out], y[out], data.targets, work.raw, *backward[1:],
            graphs, work.raw.shape[1], training, **self.constants["head"], **sizes, **rows, **stats,
            num_warps=self.warps.ends,
        )  # fmt: skip

    def backward(self, work: Workspace) -> None:
        """Gradients of every slot, from those that `forward` has left at the layers' output."""
        from gssc.ops.molecule_layer.kernels.backward import ffn_backward, mix_backward
        from gssc.ops.molecule_layer.kernels.ends import encode_backward
        from gssc.ops.molecule_layer.kernels.spectrum import gains_backward, phi_backward

        flat, data, kept = self.flat, work.data, work.kept
        grid, graphs, layers = work.slots_count, work.graphs, len(self.first.layers)
        sizes = {"T": work.tile, "C": self.channels, "PARAMS": flat.stride, "PRECISION": self.precision}
        of_k = {"K": work.frequencies, "KP": work.kp}
        p_local, p_global, p_ffn = self.dropouts
        grads = work.grads_of_slots
        for layer in reversed(range(layers)):
            start = layer * flat.layer_stride
            weights, layer_grads = flat.params[:, start:], grads[:, start:]
            ffn_backward[(grid,)](
                work.slots, weights, layer_grads, kept[layer], kept[layer, 2], work.mixed[layer], work.y[layer + 1],
                work.dx, work.dx_parts, work.dh, work.dh_parts, graphs, layer * SALTS, p_ffn,
                **self.constants["ffn_backward"], **sizes, CHUNK=CHUNK, num_warps=self.warps.ffn_backward,
            )  # fmt: skip
            mix_backward[(grid, 2)](
                work.slots, weights, layer_grads, self._edges(flat.params), self._edges(grads),
                self._norm_before(layer), kept[max(layer - 1, 0), 2], kept[layer],
                data.bonds, data.vectors, data.log_degree, work.gains[layer], work.self_gains[layer],
                work.d_gains[layer], work.d_self_gains[layer], work.y[layer], work.messages[layer],
                work.mixed[layer], work.dh, work.dh_parts, work.dx, work.dx_parts,
                graphs, layer * SALTS, int(layer > 0), int(layer < layers - 1), p_local, p_global,
                **self.constants["mix_backward"], **sizes, **of_k, CHUNK=CHUNK, num_warps=self.warps.mix_backward,
            )  # fmt: skip
        phi = {"PARAMS": flat.stride, "W": self.phi_channels, "PRECISION": self.precision} | of_k
        gains_backward[(grid, layers)](
            flat.params, grads, work.states[-1], work.d_gains, work.d_self_gains, work.d_phi, graphs,
            **self.constants["gains"], **phi, C=self.channels, num_warps=self.warps.gains,
        )  # fmt: skip
        at = flat.offsets["phi.embed.0.weight"]
        phi_backward[(grid,)](
            work.slots, flat.params[:, at:], grads[:, at:], data.eigvals, data.eigmask, work.states, work.d_phi,
            graphs, LAYERS=layers, BLOCKS=self.blocks, **phi, num_warps=self.warps.phi,
        )  # fmt: skip
        encode_backward[(grid,)](
            work.slots, flat.params, grads, work.kept_walks, data.nodes, data.rwse, work.dx, graphs,
            **self.constants["encode_backward"], **sizes, SP=work.sp, num_warps=self.warps.ends,
        )  # fmt: skip

    def step(self, work: Workspace, moments: Moments, clip: float, decay: float) -> None:
        """Add the gradients up, clip them, and take a step of AdamW; ``at`` and all counters move on."""
        from gssc.ops.molecule_layer.kernels.step import adamw, sum_gradients

        flat = self.flat
        blocks = work.squares.shape[1]
        used = {"USED": flat.used, "PARAMS": flat.stride}
        sum_gradients[(blocks, self.replicas)](
            work.at, work.slots, work.grads_of_slots, work.grads, work.squares, work.losses_of_slots, work.losses,
            work.table, work.now, work.graphs, **used, BLOCK=BLOCK, CHUNK=CHUNK, num_warps=self.warps.step,
        )  # fmt: skip
        counters = power_of_two(max(moments.steps.shape[1], flat.tracked.shape[1]))
        adamw[(-(-flat.used // ADAM_BLOCK), self.replicas)](
            work.at, work.grads, work.squares, flat.params, moments.exp_avg, moments.exp_avg_sq, moments.steps,
            flat.tracked, work.now, clip, decay, blocks, moments.steps.shape[1], flat.tracked.shape[1],
            **used, BLOCK=ADAM_BLOCK, BLOCKS=power_of_two(blocks), COUNTERS=counters, num_warps=self.warps.step,
        )  # fmt: skip

    def _edges(self, flat: Tensor) -> Tensor:
        """From the embeddings of bond types on; anything where the model has none."""
        return flat[:, self.flat.offsets.get("edge_encoder.embeddings.0.weight", 0) :]

    def _norm_before(self, layer: int) -> Tensor:
        """Weights of the norm that ends the layer before; anything before the first."""
        return self.flat.params[:, max(layer - 1, 0) * self.flat.layer_stride + self.flat.layer["norm_ffn.weight"] :]

    def _running(self, layer: int, norm: int) -> Tensor:
        return self.flat.running[:, (3 * layer + norm) * 2 * self.channels :]


Step = Callable[[], None]
