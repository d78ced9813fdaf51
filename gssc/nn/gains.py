"""Gains of the convolutions of all layers at once: they depend on φ alone, and small products are dear."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.nn.gssconv import GSSConv

LARGEST = 1 << 23  # numbers of all products; where there are more, a GPU is busy with one layer
Pair = tuple[Tensor, Tensor]  # W_q and W_k, [C, c] each


def gains_of_all(convolutions: Sequence[GSSConv], phi: Tensor) -> list[tuple[Tensor, Tensor | None]] | None:
    """A = (ΦW_q) ⊙ (ΦW_k) of every convolution, and likewise A_s of self terms; None where it is not worth it.

    Convolutions must be of one kind. On a GPU few launches count, on a CPU few operations.
    """
    first, count = convolutions[0], len(convolutions)
    if first.selective:
        return None
    pairs = [(conv.lin_q.weight, conv.lin_k.weight) for conv in convolutions]
    if first.self_term:
        pairs += [(conv.lin_sq.weight, conv.lin_sk.weight) for conv in convolutions]
    shared = first.kernel == "shared"
    if phi.device.type == "cpu":
        gains = gains_by_forms(pairs, phi) if shared else None
    else:
        gains = gains_by_products(pairs, phi, shared)
    if gains is None:
        return None
    each = gains.unbind()
    return [(each[i], each[count + i] if first.self_term else None) for i in range(count)]


def gains_by_products(pairs: Sequence[Pair], phi: Tensor, shared: bool) -> Tensor | None:
    """One product makes ΦW of all weights: [pairs, G, K, C], or [pairs, G, K, 1] summed over channels if ``shared``.

    [G K, c] with [2 · pairs · C, c]; None where that is too much.
    """
    (graphs, frequencies, width), channels = phi.shape, pairs[0][0].shape[0]
    if 2 * len(pairs) * channels * graphs * frequencies > LARGEST:
        return None
    rows = phi.reshape(-1, width)
    weights = torch.cat([query for query, _ in pairs] + [key for _, key in pairs])
    if shared:
        queries, keys = (weights @ rows.t()).to(phi.dtype).view(2, len(pairs), channels, -1).unbind()
        return (queries * keys).sum(1).view(len(pairs), graphs, frequencies, 1)
    queries, keys = (rows @ weights.t()).view(-1, 2, len(pairs), channels).unbind(1)
    return (queries * keys).transpose(0, 1).contiguous().view(len(pairs), graphs, frequencies, -1)


def gains_by_forms(pairs: Sequence[Pair], phi: Tensor) -> Tensor:
    """a_k = φ_kᵀ (W_qᵀ W_k) φ_k, summed over channels: [pairs, G, K, 1]; the forms W_qᵀ W_k [c, c] come first."""
    graphs, frequencies, width = phi.shape
    rows = phi.reshape(-1, width)
    queries, keys = (torch.stack(weights) for weights in zip(*pairs, strict=True))
    forms = torch.bmm(queries.transpose(1, 2), keys)
    products = (rows @ forms.transpose(0, 1).reshape(width, -1)).view(-1, len(pairs), width)
    return (products * rows.unsqueeze(1)).sum(-1).t().contiguous().view(-1, graphs, frequencies, 1)
