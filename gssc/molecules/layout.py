"""The parameters of models that the kernels for small graphs take, as rows of one flat buffer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.model import GSSC
from gssc.molecules.supported import difference, why_not_model
from gssc.nn.norm import BatchNorm


class FlatModels:
    """Parameters and statistics of R models of one kind as rows of flat tensors, of which the models' are views.

    Row r belongs to model r. Layers come first, one like the other; then φ, the encoders, the head.

    Attributes:
        params: [R, stride], parameters; ``used`` of a row are real.
        running: [R, ...], means and variances of the BatchNorms: three per layer, then that of random walks.
        tracked: [R, norms], numbers of batches seen.
        offsets: Where each parameter begins; ``layer`` holds those of a layer, from its beginning.
    """

    def __init__(self, models: Sequence[GSSC]) -> None:
        for model in models:
            reason = why_not_model(model) or difference(model, models[0])
            if reason is not None:
                fail("models", "models that the kernels for small graphs take", reason)
        self.models = list(models)
        first = self.models[0]
        named = dict(first.named_parameters())
        inside = [name for name in named if name.startswith("layers.")]
        order = inside + [name for name in named if not name.startswith("layers.")]
        self.offsets: dict[str, int] = {}
        at = 0
        for name in order:
            self.offsets[name] = at
            at += named[name].numel()
        self.used, self.stride = at, -(-at // 16) * 16
        prefix = "layers.0."
        self.layer = {name.removeprefix(prefix): where for name, where in self.offsets.items() if prefix in name}
        self.layer_stride = sum(named[name].numel() for name in inside) // len(first.layers)
        device = named[order[0]].device
        self.params = torch.zeros(len(models), self.stride, device=device)
        widths = [norm.num_features for norm in self._norms(first)]
        self.running = torch.zeros(len(models), -(-2 * sum(widths) // 16) * 16, device=device)
        self.tracked = torch.zeros(len(models), len(widths), dtype=torch.long, device=device)
        for row, model in enumerate(self.models):
            self._bind(row, model)

    @staticmethod
    def _norms(model: GSSC) -> list[BatchNorm]:
        found: list[Any] = []
        for layer in model.layers:
            found += [layer.norm_local, layer.norm_global, layer.norm_ffn]
        return found + ([model.rwse_encoder.norm] if model.rwse_encoder is not None else [])

    @torch.no_grad()
    def _bind(self, row: int, model: GSSC) -> None:
        for name, parameter in model.named_parameters():
            parameter.data = self._take(self.params[row], self.offsets[name], parameter.data)
        at = 0
        for number, norm in enumerate(self._norms(model)):
            for name in ("running_mean", "running_var"):
                norm._buffers[name] = self._take(self.running[row], at, getattr(norm, name))
                at += norm.num_features
            norm._buffers["num_batches_tracked"] = self._take(self.tracked[row], number, norm.num_batches_tracked)

    def memory(self) -> list[Tensor]:
        """All that training changes of the models: ``params``, ``running`` and ``tracked``."""
        return [self.params, self.running, self.tracked]

    def named_state(self, row: int, memory: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the state of a model is in tensors like those of `memory`: views, by name, and copies of constants."""
        params, running, tracked = memory
        model = self.models[row]
        names = {module: name for name, module in model.named_modules()}
        found, at = self.views(params, row), 0
        for number, norm in enumerate(self._norms(model)):
            for name in ("running_mean", "running_var"):
                found[f"{names[norm]}.{name}"] = running[row, at : at + norm.num_features]
                at += norm.num_features
            found[f"{names[norm]}.num_batches_tracked"] = tracked[row, number]
        return {name: found[name] if name in found else value.clone() for name, value in model.state_dict().items()}

    @staticmethod
    def _take(row: Tensor, at: int, values: Tensor | None) -> Tensor:
        """A view of a row that holds these values."""
        assert values is not None
        view = row[at : at + values.numel()].view(values.shape)
        view.copy_(values)
        return view

    def views(self, flat: Tensor, row: int) -> dict[str, Tensor]:
        """The parts of a tensor like ``params`` that belong to each parameter of a model."""
        return {
            name: flat[row, self.offsets[name] : self.offsets[name] + parameter.numel()].view(parameter.shape)
            for name, parameter in self.models[row].named_parameters()
        }
