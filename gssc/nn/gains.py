"""Gains of the convolutions of all layers at once: they depend on φ alone, and small products are dear."""

from collections.abc import Sequence

from torch import Tensor, nn

from gssc.nn.context import Gains
from gssc.nn.gssconv import GSSConv
from gssc.ops import joint_frequency_gains


def joint_gains(convolutions: Sequence[nn.Module], phi: Tensor) -> dict[nn.Module, Gains]:
    """A and A_s (``None`` without self term) by convolution, as ``GSSConv.gains`` makes them one by one.

    Empty where convolutions are not of one kind, or where it is not worth it: then each makes its own.
    """
    kinds = {conv.gains_kind if isinstance(conv, GSSConv) else None for conv in convolutions}
    if len(kinds) != 1 or kinds == {None}:
        return {}
    first, count = convolutions[0], len(convolutions)
    pairs = [(conv.lin_q, conv.lin_k) for conv in convolutions]
    if first.self_term:
        pairs += [(conv.lin_sq, conv.lin_sk) for conv in convolutions]
    gains = joint_frequency_gains(phi, pairs, first.kernel == "shared")  # type: ignore[arg-type]
    if gains is None:
        return {}
    return {conv: (gains[i], gains[count + i] if first.self_term else None) for i, conv in enumerate(convolutions)}
