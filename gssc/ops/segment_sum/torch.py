"""The sum of the nodes of every graph by adding rows."""

from torch import Tensor


def segment_sum(x: Tensor, batch: Tensor, ptr: Tensor) -> Tensor:
    """Σ_{v in g} x_v, [G, C]."""
    return x.new_zeros(ptr.shape[0] - 1, x.shape[1]).index_add(0, batch, x)
