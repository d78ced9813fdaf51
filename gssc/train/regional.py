"""torch.compile part by part: layers of one kind share one compiled program, so that it is made in the time of one."""

import warnings
from collections.abc import Callable

import torch
from torch import nn

from gssc.train.replay import ONE_AT_A_TIME

BACKEND = "inductor"


def parts_of(model: nn.Module) -> list[nn.Module]:
    """What is compiled: every layer, and φ."""
    layers, phi = getattr(model, "layers", []), getattr(model, "phi", None)
    return [*layers, *([] if phi is None else [phi])]


def compile_parts(models: list[nn.Module], rehearse: Callable[[], None]) -> str | None:
    """Compile the parts of models, and call ``rehearse``, which runs them; says why where that fails.

    They are compiled for sizes of any kind: one program serves all shapes of batches, padded or not. Where it fails
    they are as before; the state that a rehearsal changes is restored in any case. Names of weights do not change.
    """
    with ONE_AT_A_TIME:
        before = [{name: value.clone() for name, value in model.state_dict().items()} for model in models]
        parts = [part for model in models for part in parts_of(model)]
        for part in parts:
            part.compile(dynamic=True, backend=BACKEND)
        reason = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the compiler, about itself
                rehearse()
        except Exception as error:  # a compiler may fail with anything; a mistake of ours fails again without it
            for part in parts:
                part._compiled_call_impl = None
            reason = _one_line(error)
        with torch.no_grad():
            for model, state in zip(models, before, strict=True):
                model.load_state_dict(state)
                model.zero_grad(set_to_none=True)
        return reason


def _one_line(error: Exception) -> str:
    error = getattr(error, "inner_exception", None) or error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no reason given'}"
