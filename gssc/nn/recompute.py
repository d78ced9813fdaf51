"""Computing a piece of a model again in the backward pass, instead of keeping what it needs for that."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gssc.nn.norm import STATISTICS
from gssc.ops.context import GraphContext


def recomputed(function: Callable[..., Any], modules: nn.Module, *arguments: Any) -> Any:
    """``function(*arguments)``, of which only the arguments are kept until the backward pass, which calls it again.

    The same gradients, the same dropout, and running statistics of the BatchNorms in ``modules`` that are updated once.
    Calls may be nested.
    """
    return checkpoint(
        function, *arguments, use_reentrant=False, context_fn=lambda: (nullcontext(), scratch_statistics(modules))
    )


@contextmanager
def scratch_statistics(modules: nn.Module) -> Iterator[None]:
    """Inside, BatchNorms update copies of their running statistics, which are thrown away.

    The buffers are exchanged, not written back: the backward pass may still need them as they are.
    """
    norms = [module for module in modules.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    buffers = [(norm, name, norm._buffers[name]) for norm in norms for name in STATISTICS]
    try:
        for norm, name, buffer in buffers:
            norm._buffers[name] = None if buffer is None else buffer.clone()
        yield
    finally:
        for norm, name, buffer in buffers:
            norm._buffers[name] = buffer


def recomputed_layers(
    layers: nn.ModuleList,
    size: int,
    h: Tensor,
    e: Tensor | None,
    phi: Tensor | None,
    vectors: Tensor | None,
    context: GraphContext,
) -> list[Tensor]:
    """Node features after every layer; of groups of ``size`` layers only the inputs are kept until their turn."""

    def run(layer: nn.Module, h: Tensor, e: Tensor | None) -> tuple[Tensor, Tensor | None]:
        return layer(h, context.edge_index, phi, vectors, context.batch, e, context=context)

    def group(start: int, h: Tensor, e: Tensor | None) -> tuple[list[Tensor], Tensor | None]:
        outputs = []
        for layer in layers[start : start + size]:
            h, e = recomputed(run, layer, layer, h, e)
            outputs.append(h)
        return outputs, e

    outputs: list[Tensor] = []
    for start in range(0, len(layers), size):
        after, e = recomputed(group, layers, start, h, e) if size > 1 else group(start, h, e)
        h = after[-1]
        outputs += after
    return outputs
