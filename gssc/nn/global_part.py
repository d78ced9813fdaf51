"""What global parts that read no spectra share: how they are called, and heads."""

from abc import ABC, abstractmethod

from torch import Tensor, nn

from gssc.checks import check_positive, check_shape, fail
from gssc.nn.reset import Resets
from gssc.ops.context import GraphContext, graph_context, number_of_graphs


class GlobalPart(Resets, nn.Module, ABC):
    """A global part that reads node features and the context alone; subclasses write ``mix``.

    Args:
        channels: C, channels of input and output.
        heads: Groups of channels with weights of their own; must divide ``channels``.
    """

    def __init__(self, channels: int, heads: int = 1) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_positive("heads", heads)
        if channels % heads:
            fail("heads", f"a divisor of channels = {channels}", heads)
        self.channels, self.heads = channels, heads

    def forward(
        self, x: Tensor, phi: Tensor | None = None, vectors: Tensor | None = None, batch: Tensor | None = None, *,
        context: GraphContext | None = None,
    ) -> Tensor:  # fmt: skip
        """Mix the nodes x [N, C] of each graph; of ``phi`` only the number of graphs is read."""
        check_shape("x", x, None, self.channels)
        if context is None:
            context = graph_context(x.shape[0], number_of_graphs(phi, batch), batch, device=x.device)
        return self.mix(x, context)

    @abstractmethod
    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        """From x [N, C] to [N, C]."""

    def split(self, rows: Tensor, parts: int = 1) -> list[Tensor]:
        """Parts side by side [N, parts · C] as [N, heads, C / heads] each."""
        return [part.unflatten(1, (self.heads, -1)) for part in rows.chunk(parts, dim=1)]
