"""Global softmax attention within each graph: what GSSConv replaces, in the same place of a layer."""

from torch import Tensor, nn

from gssc.nn.global_part import GlobalPart
from gssc.ops.attention import attention
from gssc.ops.context import GraphContext


class SoftmaxAttention(GlobalPart):
    r"""Multi-head softmax attention among all nodes of a graph, O(n²), called like ``GSSConv``.

    .. math:: h = W_o\, \mathrm{softmax}(Q K^\top / \sqrt{C / \mathrm{heads}})\, V

    If ``context`` bounds the sizes of graphs, nothing is asked of the device on the way.
    """

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__(channels, heads)
        self.lin_qkv = nn.Linear(channels, 3 * channels)
        self.lin_out = nn.Linear(channels, channels)

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        q, k, v = self.lin_qkv(x).chunk(3, dim=1)
        return self.lin_out(attention(q, k, v, context.ptr, self.heads, context.largest))
