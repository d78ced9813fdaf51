"""Gains of the convolutions of all layers at once: they depend on φ alone, and small products are dear on a GPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.nn.gssconv import GSSConv

LARGEST = 1 << 23  # numbers of all products; where there are more, a GPU is busy with one layer


def gains_of_all(convolutions: Sequence[GSSConv], phi: Tensor) -> list[tuple[Tensor, Tensor | None]] | None:
    """(ΦW_q) ⊙ (ΦW_k) of every convolution, and likewise for self terms; None where it is not worth it.

    One product makes ΦW of all weights: [G K, c] with [2 · terms · layers · C, c]. Convolutions must be of one kind.
    """
    first = convolutions[0]
    graphs, frequencies, width = phi.shape
    pairs = [(conv.lin_q.weight, conv.lin_k.weight) for conv in convolutions]
    if first.self_term:
        pairs += [(conv.lin_sq.weight, conv.lin_sk.weight) for conv in convolutions]
    numbers = 2 * len(pairs) * first.channels * graphs * frequencies
    if first.selective or numbers > LARGEST:
        return None
    rows = phi.reshape(-1, width)
    weights = torch.cat([query for query, _ in pairs] + [key for _, key in pairs])
    if first.kernel == "shared":
        queries, keys = (weights @ rows.t()).to(phi.dtype).view(2, len(pairs), first.channels, -1).unbind()
        gains = (queries * keys).sum(1).view(len(pairs), graphs, frequencies, 1)
    else:
        queries, keys = (rows @ weights.t()).view(-1, 2, len(pairs), first.channels).unbind(1)
        gains = (queries * keys).transpose(0, 1).contiguous().view(len(pairs), graphs, frequencies, -1)
    each = gains.unbind()
    count = len(convolutions)
    return [(each[i], each[count + i] if first.self_term else None) for i in range(count)]
