"""One part for every layer, from a module or from a function that makes them."""

import copy
from collections.abc import Callable

from torch import nn

from gssc.checks import fail

Source = nn.Module | Callable[[int], nn.Module | None]


def copies(name: str, source: Source, count: int, channels: int) -> list[nn.Module | None]:
    """``count`` modules: ``source(channels)`` each, or the module itself and copies of it with weights of their own.

    Copies of a module that has ``reset_parameters`` draw their weights anew; others start with its weights.
    """
    if isinstance(source, nn.Module):
        parts: list[nn.Module | None] = [source]
        for _ in range(count - 1):
            part = copy.deepcopy(source)
            reset = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()
            parts.append(part)
        return parts
    if not callable(source):
        fail(name, "a name, a module or a function that makes one of its channels", repr(source))
    made = [source(channels) for _ in range(count)]
    for part in made:
        if part is not None and not isinstance(part, nn.Module):
            fail(name, "a function that returns a module", type(part).__name__)
    return made
