"""Gains of frequencies from encoded eigenvalues: A = (ΦW_q) ⊙ (ΦW_k), of one convolution or of all layers at once."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gssc.ops.linears import unmodified_linears

LARGEST = 1 << 23  # numbers of all products; where there are more, a GPU is busy with one layer
Pair = tuple[Tensor, Tensor]  # W_q and W_k, [C, c] each


def frequency_gains(phi: Tensor, query: nn.Module, key: nn.Module, shared: bool) -> Tensor:
    """A = (ΦW_q) ⊙ (ΦW_k) [G, K, C]; ``shared``, its sum over channels, diag(Φ W_q W_kᵀ Φᵀ) [G, K, 1]."""
    if shared and _are_weights(query, key):
        form = query.weight.t() @ key.weight  # type: ignore[operator]
        return ((phi @ form) * phi).sum(-1, keepdim=True)
    gains: Tensor = query(phi) * key(phi)
    return gains.sum(-1, keepdim=True) if shared else gains


def joint_frequency_gains(
    phi: Tensor, pairs: Sequence[tuple[nn.Module, nn.Module]], shared: bool
) -> tuple[Tensor, ...] | None:
    """`frequency_gains` of all pairs of equal shape in a few operations; ``None`` where it is not worth it.

    On a GPU few launches count, on a CPU few operations.
    """
    if not _are_weights(*[linear for pair in pairs for linear in pair]):
        return None
    weights: list[Pair] = [(query.weight, key.weight) for query, key in pairs]  # type: ignore[misc]
    if phi.device.type != "cpu":
        gains = _by_products(weights, phi, shared)
    else:
        gains = _by_forms(weights, phi) if shared else None
    return None if gains is None else gains.unbind()


def _are_weights(*modules: nn.Module) -> bool:
    """Whether nothing happens in these but a product with their weights."""
    return unmodified_linears(*modules) and not [module for module in modules if module.bias is not None]


def _by_products(pairs: Sequence[Pair], phi: Tensor, shared: bool) -> Tensor | None:
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


def _by_forms(pairs: Sequence[Pair], phi: Tensor) -> Tensor:
    """a_k = φ_kᵀ (W_qᵀ W_k) φ_k, summed over channels: [pairs, G, K, 1]; the forms W_qᵀ W_k [c, c] come first."""
    graphs, frequencies, width = phi.shape
    rows = phi.reshape(-1, width)
    queries, keys = (torch.stack(weights) for weights in zip(*pairs, strict=True))
    forms = torch.bmm(queries.transpose(1, 2), keys)
    products = (rows @ forms.transpose(0, 1).reshape(width, -1)).view(-1, len(pairs), width)
    return (products * rows.unsqueeze(1)).sum(-1).t().contiguous().view(-1, graphs, frequencies, 1)
