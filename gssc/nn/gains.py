"""Gains of the convolutions of all layers at once: they depend on φ alone, and small products are dear."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from gssc.nn.context import Gains
from gssc.nn.gssconv import GSSConv
from gssc.ops import joint_frequency_gains


def joint_gains(convolutions: Sequence[Any], phi: Tensor) -> dict[nn.Module, Gains]:
    """A and A_s (``None`` without self term) by convolution, as ``GSSConv.gains`` makes them one by one.

    Empty where convolutions are not of one kind, or where it is not worth it: then each makes its own.
    """
    if not convolutions:
        return {}
    first, count = convolutions[0], len(convolutions)
    for conv in convolutions:
        if type(conv) is not GSSConv or conv.selective or conv.kernel != first.kernel:
            return {}
        if (conv.self_term, conv.channels, conv.phi_channels) != (first.self_term, first.channels, first.phi_channels):
            return {}
    pairs = [(conv.lin_q, conv.lin_k) for conv in convolutions]
    if first.self_term:
        pairs += [(conv.lin_sq, conv.lin_sk) for conv in convolutions]
    gains = joint_frequency_gains(phi, pairs, first.kernel == "shared")
    if gains is None:
        return {}
    return {conv: (gains[i], gains[count + i] if first.self_term else None) for i, conv in enumerate(convolutions)}
