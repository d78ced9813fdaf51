"""One part for every layer, from a module or from a function that makes them."""

import copy
from collections.abc import Callable, Iterator

from torch import nn

from gssc.checks import fail

Source = nn.Module | Callable[[int], nn.Module | None]


def copies(name: str, source: Source, count: int, channels: int) -> Iterator[nn.Module | None]:
    """``count`` modules: ``source(channels)`` each, or the module itself and copies of it with weights of their own.

    Copies of a module that has ``reset_parameters`` draw their weights anew; others start with its weights.
    """
    for number in range(count):
        if isinstance(source, nn.Module):
            part: nn.Module | None = copy.deepcopy(source) if number else source
            reset = getattr(part, "reset_parameters", None)
            if number and reset is not None:
                reset()
        elif callable(source):
            part = source(channels)
            if part is not None and not isinstance(part, nn.Module):
                fail(name, "a function that returns a module", type(part).__name__)
        else:
            fail(name, "a name, a module or a function that makes one of its channels", repr(source))
        yield part
