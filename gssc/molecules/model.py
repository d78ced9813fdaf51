"""`GSSC` on batches of small graphs through the fused kernels: which is launched when, on what."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor

from gssc.checks import check_choice
from gssc.model import GSSC
from gssc.molecules.layout import FlatModels
from gssc.molecules.supported import bond_types, categories
from gssc.molecules.workspace import SUM_BLOCK, Workspace, power_of_two

PRECISIONS = ("tf32", "tf32x3", "ieee")
SALTS = 4  # dropouts of a layer
CHUNK, ADAM_BLOCK = 32, 1024


@dataclass(frozen=True)
class Warps:
    """Warps per program of each kernel."""

    mix_forward: int = 4
    ffn_forward: int = 4
    ffn_backward: int = 4
    mix_backward: int = 8
    encode_forward: int = 4
    encode_backward: int = 4
    phi_forward: int = 4
    phi_backward: int = 4
    gains_forward: int = 4
    gains_backward: int = 4
    head: int = 4
    sum_gradients: int = 4
    adamw: int = 4


class Launch(NamedTuple):
    """One launch of a kernel, arguments and all."""

    name: str
    run: Callable[[], Any]


def run(launches: Iterable[Launch]) -> None:
    """Launch kernels one after another."""
    for launch in launches:
        launch.run()


@dataclass
class Moments:
    """State of AdamW: like the parameters, and the step of every parameter [replicas, tensors]."""

    exp_avg: Tensor
    exp_avg_sq: Tensor
    steps: Tensor


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
        first: Any = models[0]
        self.first, layer = first, first.layers[0]
        self.replicas, self.precision, self.squared = len(models), precision, squared
        self.warps = asdict(warps or Warps())
        self.layers, self.channels = len(first.layers), layer.channels
        self.phi_channels, self.blocks = first.phi.channels, len(first.phi.pool)
        self.shared = layer.glob.kernel == "shared"
        self.dropouts = (layer.dropout_local, layer.dropout_global, layer.feed_forward[2].p)
        offsets = self.flat.offsets
        self.phi_at, self.head_at = offsets["phi.embed.0.weight"], offsets["head.mlp.0.weight"]
        self.encoders_at = offsets["node_encoder.embeddings.0.weight"]
        self.edges_at = offsets.get("edge_encoder.embeddings.0.weight", 0)
        self.constants = self._constants()

    def _constants(self) -> dict[str, dict[str, Any]]:
        """What each kernel has to know when it is compiled: where weights lie in their part of a row, and sizes."""
        offsets, inside, model = self.flat.offsets, self.flat.layer, self.first

        def where(**names: str) -> dict[str, Any]:
            return {key: inside.get(name, -1) for key, name in names.items()}

        local = where(LOCAL_1="local.nn.0.weight", LOCAL_2="local.nn.2.weight")
        local |= {"EDGES": model.edge_encoder is not None, "BONDS": bond_types(model)}
        glob = where(LIN_O="glob.lin_o.weight", LIN_S="glob.lin_s.weight", LIN_OUT="glob.lin_out.weight")
        glob |= where(DEGREE="glob.degree_scale") | {"SHARED": self.shared}
        norms = where(NORM_LOCAL="norm_local.weight", NORM_GLOBAL="norm_global.weight")
        ffn = where(FFN_1="feed_forward.0.weight", FFN_2="feed_forward.3.weight")
        gains = where(LIN_Q="glob.lin_q.weight", LIN_K="glob.lin_k.weight")
        gains |= where(LIN_SQ="glob.lin_sq.weight", LIN_SK="glob.lin_sk.weight") | {"SHARED": self.shared}
        walks = model.rwse_encoder
        encode = {"D": model.node_encoder.embeddings[0].embedding_dim, "COLUMNS": len(categories(model))}
        encode["S"] = 0 if walks is None else walks.norm.num_features
        for key, name in (("WALK_NORM", "norm.weight"), ("WALK_LINEAR", "linear.weight")):
            encode[key] = offsets.get(f"rwse_encoder.{name}", self.encoders_at) - self.encoders_at
        vocabulary, outputs = sum(categories(model)), model.head.mlp[-1].out_features
        head = {f"HEAD_{i + 1}": offsets[f"head.mlp.{2 * i}.weight"] - self.head_at for i in range(3)}
        head |= {"MEAN": model.head.pool == "mean", "SQUARED": self.squared}
        return {
            "mix_forward": local | glob,
            "ffn_forward": norms | ffn,
            "ffn_backward": norms | ffn | where(NORM_FFN="norm_ffn.weight"),
            "mix_backward": local | norms | glob,
            "gains": gains,
            "encode": encode,
            "encode_backward": encode | {"V": vocabulary, "VP": power_of_two(vocabulary, 32)},
            "head": head | {"OUT": outputs, "OP": power_of_two(outputs)},
        }

    def _launch(self, name: str, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> Launch:
        return Launch(name, partial(kernel[grid], *arguments, **constants, num_warps=self.warps[name]))

    def forward(self, work: Workspace) -> list[Launch]:
        """Encoders, layers and head: in training with the loss and the gradients behind the layers, else outputs."""
        from gssc.molecules.kernels.encoders_and_head import encode_forward, head_kernel
        from gssc.molecules.kernels.forward import ffn_forward, mix_forward
        from gssc.molecules.kernels.spectrum import gains_forward, phi_forward

        params, data, graphs, training = self.flat.params, work.data, work.graphs, int(work.training)
        slots, layers, known = work.slots_count, self.layers, self.constants
        strides: dict[str, Any] = {"params_stride": self.flat.stride, "running_stride": self.flat.running.shape[1]}
        sizes: dict[str, Any] = {"T": work.tile, "C": self.channels, "CHUNK": CHUNK}
        exact: dict[str, Any] = {"PRECISION": self.precision}
        spectrum = {"K": work.frequencies, "KP": work.kp}
        phi = spectrum | exact | {"W": self.phi_channels, "params_stride": self.flat.stride}
        y, y_parts, mixed, mixed_parts, kept = work.y, work.y_parts, work.mixed, work.mixed_parts, work.kept
        out = [
            self._launch(
                "encode_forward", encode_forward, (slots,),
                work.at, work.order, work.keys, data.ptr, data.bond_ptr, data.nodes, data.rwse, data.rwse_moments,
                work.slots, params[:, self.encoders_at :], self._running(layers, 0), work.kept_walks, y[0],
                graphs, training, **known["encode"], **sizes, **strides, **exact, SP=work.sp,
            ),
            self._launch(
                "phi_forward", phi_forward, (slots,),
                work.slots, params[:, self.phi_at :], data.eigvals, data.eigmask, work.states, graphs,
                BLOCKS=self.blocks, **phi,
            ),
            self._launch(
                "gains_forward", gains_forward, (slots, layers),
                params, work.states[-1], work.gains, work.self_gains, graphs,
                layer_stride=self.flat.layer_stride, C=self.channels, **known["gains"], **phi,
            ),
        ]  # fmt: skip
        p_local, p_global, p_ffn = self.dropouts if training else (0.0, 0.0, 0.0)
        for layer in range(layers):
            # Without training all layers share one place.
            here, before, behind = (layer, max(layer - 1, 0), layer + 1) if training else (0, 0, 0)
            weights = params[:, layer * self.flat.layer_stride :]
            out.append(self._launch(
                "mix_forward", mix_forward, (slots, 2),
                work.slots, weights, params[:, self.edges_at :], self._norm_before(layer),
                self._running(max(layer - 1, 0), 2), kept[before, 2], y_parts[here],
                data.bonds, data.vectors, data.log_degree, work.gains[layer], work.self_gains[layer],
                y[here], work.messages[here], mixed[here], mixed_parts[here],
                graphs, layer * SALTS, int(layer > 0), training, p_local, p_global,
                **known["mix_forward"], **sizes, **strides, **spectrum, **exact,
            ))  # fmt: skip
            out.append(self._launch(
                "ffn_forward", ffn_forward, (slots,),
                work.slots, weights, self._running(layer, 0), kept[here], mixed[here], mixed_parts[here],
                y[behind], y_parts[behind], graphs, layer * SALTS, training, p_ffn,
                **known["ffn_forward"], **sizes, **strides, **exact,
            ))  # fmt: skip
        end = layers if training else 0
        out.append(self._launch(
            "head", head_kernel, (slots,),
            work.slots, params[:, self.head_at :], work.grads_of_slots[:, self.head_at :], self._norm_before(layers),
            self._running(layers - 1, 2), kept[-1, 2], y_parts[end], y[end], data.targets, work.raw,
            work.losses_of_slots, work.dx, work.dx_parts, graphs, work.raw.shape[1], training,
            **known["head"], **sizes, **strides,
        ))  # fmt: skip
        return out

    def backward(self, work: Workspace) -> list[Launch]:
        """Gradients of every slot, from those that `forward` has left behind the layers."""
        from gssc.molecules.kernels.backward import ffn_backward, mix_backward
        from gssc.molecules.kernels.encoders_and_head import encode_backward
        from gssc.molecules.kernels.spectrum import gains_backward, phi_backward

        params, grads, data, kept, graphs = self.flat.params, work.grads_of_slots, work.data, work.kept, work.graphs
        slots, layers, known = work.slots_count, self.layers, self.constants
        common: dict[str, Any] = {"params_stride": self.flat.stride, "PRECISION": self.precision}
        sizes: dict[str, Any] = {"T": work.tile, "C": self.channels}
        spectrum = {"K": work.frequencies, "KP": work.kp}
        p_local, p_global, p_ffn = self.dropouts
        out = []
        for layer in reversed(range(layers)):
            start = layer * self.flat.layer_stride
            out.append(self._launch(
                "ffn_backward", ffn_backward, (slots,),
                work.slots, params[:, start:], grads[:, start:], kept[layer], kept[layer, 2], work.mixed[layer],
                work.y[layer + 1], work.dx, work.dx_parts, work.dh, work.dh_parts, graphs, layer * SALTS, p_ffn,
                CHUNK=CHUNK, **known["ffn_backward"], **sizes, **common,
            ))  # fmt: skip
            out.append(self._launch(
                "mix_backward", mix_backward, (slots, 2),
                work.slots, params[:, start:], grads[:, start:], params[:, self.edges_at :], grads[:, self.edges_at :],
                self._norm_before(layer), kept[max(layer - 1, 0), 2], kept[layer],
                data.bonds, data.vectors, data.log_degree, work.gains[layer], work.self_gains[layer],
                work.d_gains[layer], work.d_self_gains[layer], work.y[layer], work.messages[layer],
                work.mixed[layer], work.dh, work.dh_parts, work.dx, work.dx_parts,
                graphs, layer * SALTS, int(layer > 0), int(layer < layers - 1), p_local, p_global,
                CHUNK=CHUNK, **known["mix_backward"], **sizes, **spectrum, **common,
            ))  # fmt: skip
        phi = spectrum | common | {"W": self.phi_channels}
        out.append(self._launch(
            "gains_backward", gains_backward, (slots, layers),
            params, grads, work.states[-1], work.d_gains, work.d_self_gains, work.d_phi, graphs,
            layer_stride=self.flat.layer_stride, C=self.channels, **known["gains"], **phi,
        ))  # fmt: skip
        out.append(self._launch(
            "phi_backward", phi_backward, (slots,),
            work.slots, params[:, self.phi_at :], grads[:, self.phi_at :], data.eigvals, data.eigmask, work.states,
            work.d_phi, graphs, layers=layers, BLOCKS=self.blocks, **phi,
        ))  # fmt: skip
        out.append(self._launch(
            "encode_backward", encode_backward, (slots,),
            work.slots, params[:, self.encoders_at :], grads[:, self.encoders_at :], work.kept_walks, data.nodes,
            data.rwse, work.dx, graphs, SP=work.sp, **known["encode_backward"], **sizes, **common,
        ))  # fmt: skip
        return out

    def step(self, work: Workspace, moments: Moments, clip: float, decay: float) -> list[Launch]:
        """Add the gradients up, clip them, and take a step of AdamW; ``at`` and all counters move on."""
        from gssc.molecules.kernels.step import adamw, sum_gradients

        flat, blocks = self.flat, work.squares.shape[1]
        tensors, norms = moments.steps.shape[1], flat.tracked.shape[1]
        sizes = {"used": flat.used, "params_stride": flat.stride}
        return [
            self._launch(
                "sum_gradients", sum_gradients, (blocks, self.replicas),
                work.at, work.slots, work.grads_of_slots, work.grads, work.squares, work.losses_of_slots, work.losses,
                work.table, work.now, work.graphs, BLOCK=SUM_BLOCK, CHUNK=CHUNK, **sizes,
            ),
            self._launch(
                "adamw", adamw, (-(-flat.used // ADAM_BLOCK), self.replicas),
                work.at, work.grads, work.squares, flat.params, moments.exp_avg, moments.exp_avg_sq, moments.steps,
                flat.tracked, work.losses, work.now, clip, decay, blocks, tensors, norms, BLOCK=ADAM_BLOCK,
                BLOCKS=power_of_two(blocks), COUNTERS=power_of_two(max(tensors, norms)), **sizes,
            ),
        ]  # fmt: skip

    def _norm_before(self, layer: int) -> Tensor:
        """Weights of the norm that ends the layer before; anything before the first."""
        return self.flat.params[:, max(layer - 1, 0) * self.flat.layer_stride + self.flat.layer["norm_ffn.weight"] :]

    def _running(self, layer: int, norm: int) -> Tensor:
        """Statistics of norms from this one on; behind the last layer come those of random walks."""
        return self.flat.running[:, (3 * layer + norm) * 2 * self.channels :]
