"""The features that a convolution mixes and scales: products of x, with what follows the global term in them."""

import torch.nn.functional as F
from torch import Tensor, nn

from gssc.ops.linears import products, unmodified_linears

Projection = nn.Module | Tensor | None


def conv_features(
    x: Tensor, lin_o: nn.Module, lin_s: nn.Module | None, projection: nn.Module | None, *, shared: bool
) -> tuple[Tensor, Tensor | None, Projection]:
    """X_o = lin_o(x), X_s = lin_s(x) [N, C] and the projection that is left to do.

    A gain that all channels share (``shared``) commutes with a Linear after the global term: its weight is multiplied
    into that of ``lin_o``, and its bias is left. Modules that are not as PyTorch made them are called.
    """
    folds = unmodified_linears(lin_o, lin_s, projection) and lin_o.bias is None
    if not folds or (lin_s is not None and lin_s.bias is not None):
        return lin_o(x), None if lin_s is None else lin_s(x), projection
    weight: Tensor = lin_o.weight  # type: ignore[assignment]
    rest: Projection = projection
    if projection is not None and shared:
        weight, rest = projection.weight @ weight, projection.bias  # type: ignore[operator]
    if lin_s is None:
        return F.linear(x, weight), None, rest
    x_o, x_s = products(x, weight, lin_s.weight)
    return x_o, x_s, rest
