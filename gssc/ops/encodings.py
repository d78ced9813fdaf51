"""Encodings of eigenvalues as ops: arguments checked, backend chosen."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.checks import check_shape, fail
from gssc.ops.phi import triton as _deep_fused
from gssc.ops.phi import naive as _deep_naive
from gssc.ops.messages import Backend, takes_kernels


def deep_set(eigvals: Tensor, eigmask: Tensor, weights: Sequence[Tensor], backend: Backend = "auto") -> Tensor:
    r"""Eigenvalues that see the whole spectrum of their graph, by set pooling.

    .. math:: e_k \leftarrow e_k + \mathrm{mean}_l(\mathrm{MLP}_1(e_l)) \odot \mathrm{MLP}_2(e_k)

    once per block, starting from one unit of sign(λ)√|λ|. A unit is Linear, LayerNorm (ε = 1e-5) and SiLU, an MLP two
    units; the mean runs over the valid frequencies of a graph, and is zero where there are none.

    Args:
        eigvals: λ, [G, K].
        eigmask: True = valid, [G, K].
        weights: Four tensors per unit: weight [C, C] (of the first unit [C, 1]) and bias [C] of Linear, weight and bias
            [C] of LayerNorm. First the unit of the embedding, then the MLP₁ of every block, then the MLP₂ of every one.
        backend: ``"fused"`` (Triton; C of 16, 32 or 64, K of at most 64, float32, and no gradient of λ), ``"eager"``
            or, the same, ``"naive"``, or ``"auto"``: fused where it can be.

    Returns:
        Φ, zero where masked, [G, K, C].
    """
    check_shape("eigvals", eigvals, None, None)
    check_shape("eigmask", eigmask, *eigvals.shape)
    if eigmask.dtype != torch.bool:
        fail("eigmask", "a boolean tensor (True = valid)", eigmask.dtype)
    if len(weights) < _deep_naive.UNIT or (len(weights) - _deep_naive.UNIT) % _deep_naive.BLOCK:
        fail("weights", "4 tensors, and 16 more for every block", len(weights))
    channels = weights[0].shape[0]
    for place, weight in enumerate(weights):
        matrix = (channels, 1 if place == 0 else channels)
        check_shape(f"weights[{place}]", weight, *(matrix if place % _deep_naive.UNIT == 0 else (channels,)))
    fused = takes_kernels(backend, eigvals=eigvals, weights=weights[0])
    fits = _deep_fused.fits(eigvals, weights)
    if backend == "fused" and not fits:
        came = f"{eigvals.dtype}, C = {channels}, K = {eigvals.shape[1]}, requires_grad = {eigvals.requires_grad}"
        fail("eigvals", "what the kernels take (see backend) for backend='fused'", came)
    return (_deep_fused if fused and fits else _deep_naive).deep_set(eigvals, eigmask, weights)
