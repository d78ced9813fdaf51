"""Global softmax attention within each graph: what GSSConv replaces, in the same place of a layer."""

from torch import Tensor, nn

from gssc.checks import check_positive, check_shape, fail
from gssc.nn.reset import Resets
from gssc.ops.attention import attention
from gssc.ops.context import GraphContext, graph_context, number_of_graphs


class SoftmaxAttention(Resets, nn.Module):
    r"""Multi-head softmax attention among all nodes of a graph, O(n²), called like ``GSSConv``.

    .. math:: h = W_o\, \mathrm{softmax}(Q K^\top / \sqrt{C / \mathrm{heads}})\, V

    Args:
        channels: C, channels of input and output.
        heads: Attention heads; must divide ``channels``.
    """

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        check_positive("channels", channels)
        check_positive("heads", heads)
        if channels % heads:
            fail("heads", f"a divisor of channels = {channels}", heads)
        self.channels, self.heads = channels, heads
        self.lin_qkv = nn.Linear(channels, 3 * channels)
        self.lin_out = nn.Linear(channels, channels)

    def forward(
        self,
        x: Tensor,
        phi: Tensor | None = None,
        vectors: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        context: GraphContext | None = None,
    ) -> Tensor:
        """Attend among the nodes x [N, C] of each graph; of ``phi`` only the number of graphs is read.

        ``context`` is what layers of a model share, in place of ``batch``. If it bounds the sizes of graphs, nothing is
        asked of the device on the way.
        """
        check_shape("x", x, None, self.channels)
        if context is None:
            context = graph_context(x.shape[0], number_of_graphs(phi, batch), batch, device=x.device)
        q, k, v = self.lin_qkv(x).chunk(3, dim=1)
        return self.lin_out(attention(q, k, v, context.ptr, self.heads, context.largest))
