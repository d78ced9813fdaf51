"""Gains of the convolutions of all layers in one product: they depend on φ alone, and small calls are dear on a CPU."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.nn.gssconv import GSSConv


def collapsed_gains(convolutions: Sequence[GSSConv], phi: Tensor) -> list[tuple[Tensor, Tensor | None]] | None:
    """a_k = φ_kᵀ (W_qᵀ W_k) φ_k of the global term, and likewise of the self term, of every convolution: [G, K, 1].

    For kernels that channels share; None for others. Convolutions must be of one kind.
    """
    first, count = convolutions[0], len(convolutions)
    if first.kernel != "shared" or first.selective:
        return None
    pairs = [(conv.lin_q.weight, conv.lin_k.weight) for conv in convolutions]
    if first.self_term:
        pairs += [(conv.lin_sq.weight, conv.lin_sk.weight) for conv in convolutions]
    queries, keys = (torch.stack(weights) for weights in zip(*pairs, strict=True))
    graphs, frequencies, width = phi.shape
    rows = phi.reshape(-1, width)
    forms = torch.bmm(queries.transpose(1, 2), keys)  # [terms · layers, c, c]
    products = (rows @ forms.transpose(0, 1).reshape(width, -1)).view(-1, len(pairs), width)
    gains = (products * rows.unsqueeze(1)).sum(-1).t().contiguous().view(-1, graphs, frequencies, 1)
    each = gains.unbind()
    return [(each[i], each[count + i] if first.self_term else None) for i in range(count)]
