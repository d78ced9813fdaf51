"""Selection in Triton: kernels per graph and channel where graphs are small, else the composition of products.

The composition is ``eager.py`` with the products of Triton. Neither looks at sizes of graphs on the host, nor stores
anything of size n K²; results of both repeat.
"""

from torch import Tensor

from gssc.ops.selective import torch as eager, per_graph


def selective_gssc_conv(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    weights: dict[str, Tensor],
    ptr: Tensor,
    shared: bool,
    normalize: bool,
) -> Tensor:
    """Arguments as in the dispatch ``gssc.ops.selective``."""
    inputs = (x, x_o, x_s, vectors, phi, pair_gains, weights, ptr)
    if per_graph.fits(x, vectors, ptr, shared):
        return per_graph.selective_gssc_conv(*inputs, normalize)
    return eager.selective_gssc_conv(*inputs, shared, normalize, by=per_graph.FUSED)
