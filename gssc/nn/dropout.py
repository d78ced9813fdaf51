"""Dropout as a module."""

from torch import Tensor, nn

from gssc.ops import dropout


class Dropout(nn.Module):
    """`gssc.ops.dropout` as a module: quick on a CPU as well.

    Args:
        p: Probability of zeroing an entry.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"
