"""The parameters of models that the kernels for small graphs take, as rows of one flat buffer."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.molecules.supported import difference, why_not_model


class FlatModels:
    """Parameters and statistics of R models of one kind as rows of flat tensors, of which the models' are views.

    Row r belongs to model r. Layers come first, one like the other; then φ, the encoders, the head.

    Attributes:
        params: [R, stride], parameters; ``used`` of a row are real.
        running: [R, ...], means and variances of the BatchNorms: three per layer, then that of random walks.
        tracked: [R, norms], numbers of batches seen.
        offsets: Where each parameter begins; ``layer`` holds those of a layer, from its beginning.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        for model in models:
            reason = why_not_model(model) or difference(model, models[0])
            if reason is not None:
                fail("models", "models that the kernels for small graphs take", reason)
        self.models, layers = list(models), len(models[0].layers)
        parameters = dict(models[0].named_parameters())
        self.offsets: dict[str, int] = {}
        self.used = 0
        for name in sorted(parameters, key=lambda name: not name.startswith("layers.")):
            self.offsets[name] = self.used
            self.used += parameters[name].numel()
        self.layer = {name: self.offsets[f"layers.0.{name}"] for name, _ in models[0].layers[0].named_parameters()}
        self.layer_stride = sum(parameter.numel() for parameter in models[0].layers[0].parameters())
        norms = [f"layers.{i}.norm_{kind}" for i in range(layers) for kind in ("local", "global", "ffn")]
        norms += [] if models[0].rwse_encoder is None else ["rwse_encoder.norm"]
        self.norms = {name: models[0].get_submodule(name).num_features for name in norms}
        self.stride, width = (-(-number // 16) * 16 for number in (self.used, 2 * sum(self.norms.values())))
        device = next(iter(parameters.values())).device
        self.params = torch.zeros(len(models), self.stride, device=device)
        self.running = torch.zeros(len(models), width, device=device)
        self.tracked = torch.zeros(len(models), len(norms), dtype=torch.long, device=device)
        for row, model in enumerate(models):
            self._bind(row, model)

    @torch.no_grad()
    def _bind(self, row: int, model: Any) -> None:
        """Give a model the memory of a row, with the values it has."""
        views = self.named_state(row, self.memory())
        for name, value in model.state_dict().items():
            views[name].copy_(value)
        for name, parameter in model.named_parameters():
            parameter.data = views[name]
        for name in self.norms:
            buffers = model.get_submodule(name)._buffers
            buffers.update({kind: views[f"{name}.{kind}"] for kind in buffers})

    def memory(self) -> list[Tensor]:
        """All that training changes of the models: ``params``, ``running`` and ``tracked``."""
        return [self.params, self.running, self.tracked]

    def named_state(self, row: int, memory: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the state of a model is in tensors like those of `memory`: views, by name, and copies of constants."""
        params, running, tracked = memory
        views, at = self.views(params, row), 0
        for number, (name, width) in enumerate(self.norms.items()):
            views[f"{name}.running_mean"] = running[row, at : at + width]
            views[f"{name}.running_var"] = running[row, at + width : at + 2 * width]
            views[f"{name}.num_batches_tracked"] = tracked[row, number]
            at += 2 * width
        state = self.models[row].state_dict()
        return {name: views[name] if name in views else value.clone() for name, value in state.items()}

    def views(self, flat: Tensor, row: int) -> dict[str, Tensor]:
        """The parts of a tensor like ``params`` that belong to each parameter of a model."""
        return {
            name: flat[row, self.offsets[name] : self.offsets[name] + parameter.numel()].view(parameter.shape)
            for name, parameter in self.models[row].named_parameters()
        }
