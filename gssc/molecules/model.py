"""`GSSC` on batches of small graphs through the fused kernels: which is launched when, on what."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gssc.checks import check_choice, fail
from gssc.molecules.supported import bond_types, categories, difference, why_not_model
from gssc.molecules.workspace import SUM_BLOCK, AdamState, Batch, Constants, Layer, Norm, Workspace
from gssc.ops.triton_support import power_of_two

PRECISIONS = ("tf32", "tf32x3", "ieee")
SALTS = 4  # dropouts of a layer
CHUNK, ADAM_BLOCK = 32, 1024
WARPS = {"mix_backward": 8}  # per program, where it is not 4


class Launch(NamedTuple):
    """One launch of a kernel, arguments and all."""

    name: str
    run: Callable[[], Any]


def run(launches: Iterable[Launch]) -> None:
    """Launch kernels one after another."""
    for launch in launches:
        launch.run()


class MoleculeModel:
    """R models of one kind (R = 1: one) on batches of small graphs: a layer is two kernels forward, two backward.

    The models keep their parameters and statistics, as views of flat memory: what changes here changes there.

    Args:
        models: The models; their weights may differ, nothing else.
        precision: How matrices are multiplied: ``"tf32"``, ``"tf32x3"`` (nearly float32) or ``"ieee"``.
        squared: Squared instead of absolute error as the loss.
    """

    def __init__(self, models: Sequence[nn.Module], precision: str = "tf32", squared: bool = False) -> None:
        check_choice("precision", precision, PRECISIONS)
        self.flat = FlatModels(models)
        first: Any = models[0]
        self.first, layer = first, first.layers[0]
        self.replicas, self.precision, self.squared = len(models), precision, squared
        self.warps = dict(WARPS)
        self.layers, self.channels = len(first.layers), layer.channels
        self.phi_channels, self.blocks = first.phi.channels, len(first.phi.pool)
        self.shared = layer.glob.kernel == "shared"
        self.dropouts = (layer.dropout_local, layer.dropout_global, layer.feed_forward[2].p)

    def forward(self, work: Workspace) -> list[Launch]:
        """Encoders, layers and head: in training with the loss and the gradients behind the layers, else outputs."""
        from gssc.molecules.kernels.encoders_and_head import encode_forward, head_kernel
        from gssc.molecules.kernels.layer import ffn_forward, mix_forward
        from gssc.molecules.kernels.spectrum import gains_forward, phi_forward

        batch, data, m, training = self._batch(work), work.data, self._constants(work), int(work.training)
        slots, walks, spectrum = work.slots_count, self._walks(work), work.spectrum
        p_local, p_global, p_ffn = self.dropouts if training else (0.0, 0.0, 0.0)
        layers = [self._layer(work, number) for number in range(self.layers)]
        launches = [
            self._launch(encode_forward, (slots,), batch, work.tables, data, walks, layers[0].x, training, m),
            self._launch(phi_forward, (slots,), batch, data, spectrum, m),
            self._launch(gains_forward, (slots, self.layers), batch, spectrum, layers[0], self.flat.layer_stride, m),
        ]
        for number, layer in enumerate(layers):
            salt, normed = number * SALTS, int(number > 0)
            mix = batch, data, layer, salt, normed, training, p_local, p_global, m
            launches.append(self._launch(mix_forward, (slots, 2), *mix))
            launches.append(self._launch(ffn_forward, (slots,), batch, layer, salt, training, p_ffn, m))
        head = batch, data, layers[-1], work.back, work.sums.partial_losses, work.raw, work.raw.shape[1], training, m
        return [*launches, self._launch(head_kernel, (slots,), *head)]

    def backward(self, work: Workspace) -> list[Launch]:
        """Gradients of every slot, from those that `forward` has left behind the layers."""
        from gssc.molecules.kernels.encoders_and_head import encode_backward
        from gssc.molecules.kernels.layer import ffn_backward, mix_backward
        from gssc.molecules.kernels.spectrum import gains_backward, phi_backward

        batch, data, back, m = self._batch(work), work.data, work.back, self._constants(work)
        slots, walks, spectrum = work.slots_count, self._walks(work), work.spectrum
        p_local, p_global, p_ffn = self.dropouts
        layers = [self._layer(work, number) for number in range(self.layers)]
        launches = []
        for number, layer in reversed(list(enumerate(layers))):
            salt, normed, accumulate = number * SALTS, int(number > 0), int(number < self.layers - 1)
            mix = batch, data, layer, back, salt, normed, accumulate, p_local, p_global, m
            launches.append(self._launch(ffn_backward, (slots,), batch, layer, back, salt, p_ffn, m))
            launches.append(self._launch(mix_backward, (slots, 2), *mix))
        return [
            *launches,
            self._launch(gains_backward, (slots, self.layers), batch, spectrum, layers[0], self.flat.layer_stride, m),
            self._launch(phi_backward, (slots,), batch, data, spectrum, self.layers, m),
            self._launch(encode_backward, (slots,), batch, data, walks, back.dx, m),
        ]

    def step(self, work: Workspace, moments: AdamState, clip: float, decay: float) -> list[Launch]:
        """Add the gradients up, clip them, and take a step of AdamW; ``at`` and all counters move on."""
        from gssc.molecules.kernels.step import adamw, sum_gradients

        memory, flat = (self._batch(work), work.tables, work.sums), self.flat
        blocks, tensors, norms = work.sums.squares.shape[1], moments.steps.shape[1], flat.tracked.shape[1]
        sizes = ADAM_BLOCK, power_of_two(blocks), power_of_two(max(tensors, norms))
        update = flat.params, flat.tracked, clip, decay, blocks, tensors, norms, flat.used, *sizes
        return [
            self._launch(sum_gradients, (blocks, self.replicas), *memory, flat.used, SUM_BLOCK, CHUNK),
            self._launch(adamw, (-(-flat.used // ADAM_BLOCK), self.replicas), *memory, moments, *update),
        ]

    def _launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any) -> Launch:
        name = kernel.__name__.removesuffix("_kernel")
        return Launch(name, partial(kernel[grid], *arguments, num_warps=self.warps.get(name, 4)))

    def _constants(self, work: Workspace) -> Constants:
        """Sizes and options; where weights lie, those of a layer from its beginning: the first layer comes first."""
        model, walks = self.first, self.first.rwse_encoder
        weights = {
            "NODES": "node_encoder.embeddings.0.weight", "EDGES": "edge_encoder.embeddings.0.weight",
            "WALK_NORM": "rwse_encoder.norm.weight", "WALK_LINEAR": "rwse_encoder.linear.weight",
            "PHI": "phi.embed.0.weight",
            "LOCAL_1": "layers.0.local.nn.0.weight", "LOCAL_2": "layers.0.local.nn.2.weight",
            **{f"LIN_{i}": f"layers.0.glob.lin_{i.lower()}.weight" for i in ("Q", "K", "O", "SQ", "SK", "S", "OUT")},
            "DEGREE": "layers.0.glob.degree_scale",
            "NORM_LOCAL": "layers.0.norm_local.weight", "NORM_GLOBAL": "layers.0.norm_global.weight",
            "FFN_1": "layers.0.feed_forward.0.weight", "FFN_2": "layers.0.feed_forward.3.weight",
            "NORM_FFN": "layers.0.norm_ffn.weight",
            "HEAD_1": "head.mlp.0.weight", "HEAD_2": "head.mlp.2.weight", "HEAD_3": "head.mlp.4.weight",
        }  # fmt: skip
        columns, outputs = categories(model.node_encoder), model.head.mlp[-1].out_features
        from triton.language import constexpr

        return Constants(
            **{key: self.flat.offsets.get(name, -1) for key, name in weights.items()},
            PRECISION=constexpr(self.precision),  # a plain string is no constant to Triton 3.6
            CHUNK=CHUNK,  # slots that a program looks at together
            T=work.tile,
            C=self.channels,
            D=model.node_encoder.embeddings[0].embedding_dim,  # the other channels encode random walks
            COLUMNS=len(columns),
            V=sum(columns),  # categories of all columns
            VP=power_of_two(sum(columns), 32),
            BONDS=bond_types(model),
            S=0 if walks is None else walks.norm.num_features,
            SP=work.sp,
            K=work.frequencies,
            KP=work.kp,
            W=self.phi_channels,
            BLOCKS=self.blocks,
            SHARED=self.shared,
            MEAN=model.head.pool == "mean",
            SQUARED=self.squared,
            OUT=outputs,
            OP=power_of_two(outputs),
        )

    def _batch(self, work: Workspace) -> Batch:
        flat = self.flat
        return Batch(work.slots, work.graphs, flat.params, work.sums.partial, flat.stride, flat.running.shape[1])

    def _walks(self, work: Workspace) -> Norm:
        """The norm of random-walk encodings, if there are any."""
        return self._norm("rwse_encoder.norm", work.kept_walks, work.data.rwse_moments)

    def _layer(self, work: Workspace, number: int) -> Layer:
        # Without training all layers share one place.
        here, before, behind = (number, max(number - 1, 0), number + 1) if work.training else (0, 0, 0)
        start, kept = number * self.flat.layer_stride, work.kept[here]
        return Layer(
            weights=self.flat.params[:, start:],
            grads=work.sums.partial[:, start:],
            before=self._norm(f"layers.{max(number - 1, 0)}.norm_ffn", work.kept[before, 2], work.y_parts[here]),
            local=self._norm(f"layers.{number}.norm_local", kept[0], work.mixed_parts[here, 0]),
            glob=self._norm(f"layers.{number}.norm_global", kept[1], work.mixed_parts[here, 1]),
            after=self._norm(f"layers.{number}.norm_ffn", kept[2], work.y_parts[behind]),
            x=work.y[here],
            messages=work.messages[here],
            mixed=work.mixed[here],
            y=work.y[behind],
            gains=work.gains[number],
            self_gains=work.self_gains[number],
            d_gains=work.d_gains[number:],
            d_self_gains=work.d_self_gains[number:],
        )

    def _norm(self, name: str, kept: Tensor, parts: Tensor) -> Norm:
        flat = self.flat
        weight, running = flat.offsets.get(f"{name}.weight", 0), flat.statistics.get(name, 0)
        return Norm(flat.params[:, weight:], flat.running[:, running:], kept, parts)


class FlatModels:
    """Parameters and statistics of R models of one kind as rows of flat tensors, of which the models' are views.

    Row r belongs to model r. Layers come first, one like the other; then φ, the encoders, the head.

    Attributes:
        params: [R, stride], parameters; ``used`` of a row are real.
        running: [R, ...], means and variances of the BatchNorms: three per layer, then that of random walks.
        tracked: [R, norms], numbers of batches seen.
        offsets: Where each parameter begins; ``statistics``: where the mean of each BatchNorm does.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        for model in models:
            reason = why_not_model(model) or difference(model, models[0])
            if reason is not None:
                fail("models", "models that the kernels for small graphs take", reason)
        self.models, layers = list(models), len(models[0].layers)
        parameters = dict(models[0].named_parameters())
        names = sorted(parameters, key=lambda name: not name.startswith("layers."))
        self.offsets, self.used = _places({name: parameters[name].numel() for name in names})
        self.layer_stride = sum(parameter.numel() for parameter in models[0].layers[0].parameters())
        norms = [f"layers.{i}.norm_{kind}" for i in range(layers) for kind in ("local", "global", "ffn")]
        norms += [] if models[0].rwse_encoder is None else ["rwse_encoder.norm"]
        self.statistics, running = _places({name: 2 * models[0].get_submodule(name).num_features for name in norms})
        self.stride, width = (-(-number // 16) * 16 for number in (self.used, running))
        device = next(iter(parameters.values())).device
        self.params = torch.zeros(len(models), self.stride, device=device)
        self.running = torch.zeros(len(models), width, device=device)
        self.tracked = torch.zeros(len(models), len(norms), dtype=torch.long, device=device)
        for row, model in enumerate(models):
            self._bind(row, model)

    @torch.no_grad()
    def _bind(self, row: int, model: Any) -> None:
        """Give a model the memory of a row, with the values it has."""
        views = self.views(self.params, row)
        for name, parameter in model.named_parameters():
            parameter.data = views[name].copy_(parameter)
        for number, (name, at) in enumerate(self.statistics.items()):
            buffers, width = model.get_submodule(name)._buffers, model.get_submodule(name).num_features
            mean, variance = self.running[row, at : at + 2 * width].split(width)
            own = {"running_mean": mean, "running_var": variance, "num_batches_tracked": self.tracked[row, number]}
            buffers.update({kind: view.copy_(buffers[kind]) for kind, view in own.items()})

    def memory(self) -> list[Tensor]:
        """All that training changes of the models: ``params``, ``running`` and ``tracked``."""
        return [self.params, self.running, self.tracked]

    def views(self, flat: Tensor, row: int) -> dict[str, Tensor]:
        """The parts of a tensor like ``params`` that belong to each parameter of a model."""
        return {
            name: flat[row, self.offsets[name] : self.offsets[name] + parameter.numel()].view(parameter.shape)
            for name, parameter in self.models[row].named_parameters()
        }


def _places(sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    """Where each begins if they lie one behind the other, and where the last ends."""
    *starts, end = accumulate(sizes.values(), initial=0)
    return dict(zip(sizes, starts, strict=True)), end
