"""Encodings of eigenvalues."""

from collections.abc import Sequence

from torch import Tensor, nn

from gssc.checks import check_choice, check_shape, fail
from gssc.ops.op import unmodified, weight_and_bias
from gssc.ops.phi import naive, triton
from gssc.ops.triton_support import BACKENDS, can_fuse, check_fusible

__all__ = ["deep_set"]


def deep_set(
    eigvals: Tensor,
    eigmask: Tensor,
    embed: nn.Module,
    pool: Sequence[nn.Module],
    update: Sequence[nn.Module],
    backend: str = "auto",
) -> Tensor:
    r"""Eigenvalues that see the whole spectrum of their graph, by set pooling.

    .. math:: e_k \leftarrow e_k + \mathrm{mean}_l(\mathrm{MLP}_1(e_l)) \odot \mathrm{MLP}_2(e_k)

    once per block, starting from ``embed`` of sign(λ)√|λ|; the mean runs over the valid frequencies of a graph, and is
    zero where there are none.

    Args:
        eigvals: λ, [G, K].
        eigmask: True = valid, [G, K].
        embed: From one number to C channels.
        pool: MLP₁ of every block.
        update: MLP₂ of every block.
        backend: ``"triton"`` (where every part is Linear, LayerNorm and SiLU, once in ``embed`` and twice in an MLP,
            with C of at most 128, K of at most 64, float32, and no gradient of λ), ``"torch"``, ``"naive"`` (from
            the weights of such parts), or ``"auto"``: triton where it can be, else torch.

    Returns:
        Φ, zero where masked, [G, K, C].
    """
    if eigmask.shape != eigvals.shape:
        check_shape("eigmask", eigmask, *eigvals.shape)
    if backend not in ("auto", "torch") or (backend == "auto" and eigvals.is_cuda and can_fuse(eigvals)):
        check_choice("backend", backend, BACKENDS)
        weights = unit_weights(embed, pool, update)
        fits = weights is not None and triton.fits(eigvals, weights[0].shape[0])
        if weights is not None and (fits or backend == "naive"):
            if backend == "triton":
                check_fusible(eigvals=eigvals, weights=weights[0])
            return (naive if backend == "naive" else triton).deep_set(eigvals, eigmask, weights)
        if backend != "auto":
            came = f"{eigvals.dtype}, K = {eigvals.shape[1]}, requires_grad = {eigvals.requires_grad}"
            fail("eigvals", f"what the kernels take (see backend) for backend={backend!r}", came)
    masked = ~eigmask.unsqueeze(-1)
    eigvals = eigvals.masked_fill(~eigmask, 0.0)
    e: Tensor = embed((eigvals.sign() * eigvals.abs().sqrt()).unsqueeze(-1))
    count = eigmask.sum(1).clamp(min=1).view(-1, 1, 1)
    for mlp1, mlp2 in zip(pool, update, strict=True):
        mean = mlp1(e).masked_fill(masked, 0.0).sum(1, keepdim=True) / count
        e = e + mean * mlp2(e)
    return e.masked_fill(masked, 0.0)


def unit_weights(embed: nn.Module, pool: Sequence[nn.Module], update: Sequence[nn.Module]) -> list[Tensor] | None:
    """Weights of all units (Linear, LayerNorm, SiLU), or None where a module must be called or has another shape."""
    weights: list[Tensor] = []
    parts = [embed, *pool, *update]
    for place, part in enumerate(parts):
        if not unmodified(part, kind=nn.Sequential) or len(part) != (3 if place == 0 else 6):  # type: ignore[arg-type]
            return None
        modules = list(part)  # type: ignore[call-overload]
        for linear, norm, activation in zip(modules[0::3], modules[1::3], modules[2::3], strict=True):
            ours = unmodified(linear) and unmodified(norm, kind=nn.LayerNorm) and unmodified(activation, kind=nn.SiLU)
            if not ours:
                return None
            unit = (*weight_and_bias(linear), *weight_and_bias(norm))
            if unit[1] is None or unit[3] is None or norm.eps != naive.EPS:
                return None
            if linear.out_features != linear.in_features and weights:
                return None
            weights += unit
    width = weights[0].shape[0]
    plain = len(pool) == len(update) and weights[0].shape[1] == 1
    return weights if plain and all(weight.shape[0] == width for weight in weights) else None
