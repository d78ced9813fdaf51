"""The deep set of eigenvalues by its modules."""

from collections.abc import Iterable

from torch import Tensor, nn


def deep_set(
    eigvals: Tensor, eigmask: Tensor, embed: nn.Module, pool: Iterable[nn.Module], update: Iterable[nn.Module]
) -> Tensor:
    """Φ [G, K, C]; eigenvalues are zero where masked."""
    e: Tensor = embed((eigvals.sign() * eigvals.abs().sqrt()).unsqueeze(-1))
    masked = ~eigmask.unsqueeze(-1)
    count = eigmask.sum(1).clamp(min=1).view(-1, 1, 1)
    for mlp1, mlp2 in zip(pool, update, strict=True):
        mean = mlp1(e).masked_fill(masked, 0.0).sum(1, keepdim=True) / count
        e = e + mean * mlp2(e)
    return e.masked_fill(masked, 0.0)
