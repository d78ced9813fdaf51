"""The deep set of eigenvalues from its weights alone: the judge, and what second derivatives are made of."""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

UNIT = 4  # tensors of a unit: weight and bias of Linear, weight and bias of LayerNorm
BLOCK = 4 * UNIT  # a block has two units that are pooled and two that update
EPS = 1e-5  # of LayerNorm


def blocks_of(weights: Sequence[Tensor]) -> int:
    """Number of blocks that so many tensors are for."""
    return (len(weights) - UNIT) // BLOCK


def deep_set(eigvals: Tensor, eigmask: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Φ [G, K, C]; arguments as in the dispatch ``gssc.ops.phi``."""
    units = [weights[first : first + UNIT] for first in range(0, len(weights), UNIT)]
    blocks, valid = blocks_of(weights), eigmask.unsqueeze(-1)
    eigvals = eigvals.masked_fill(~eigmask, 0.0)
    count = valid.sum(1, keepdim=True).clamp(min=1)
    e = _unit((eigvals.sign() * eigvals.abs().sqrt()).unsqueeze(-1), units[0])
    for block in range(blocks):
        pool, update = 1 + 2 * block, 1 + 2 * (blocks + block)
        pooled = _unit(_unit(e, units[pool]), units[pool + 1])
        mean = pooled.masked_fill(~valid, 0.0).sum(1, keepdim=True) / count
        e = e + mean * _unit(_unit(e, units[update]), units[update + 1])
    return e.masked_fill(~valid, 0.0)


def _unit(e: Tensor, unit: Sequence[Tensor]) -> Tensor:
    """SiLU(LayerNorm(Linear(e)))."""
    weight, bias, norm_weight, norm_bias = unit
    return F.silu(F.layer_norm(F.linear(e, weight, bias), bias.shape, norm_weight, norm_bias, EPS))


def split_weights(flat: Tensor, width: int) -> list[Tensor]:
    """The tensors that stand behind one another in ``flat``."""
    vectors = [(width,)] * (UNIT - 1)
    units = (flat.shape[0] // width - UNIT) // (width + UNIT - 1)  # behind the first, whose Linear has one column
    shapes = [(width, 1), *vectors] + [(width, width), *vectors] * units
    parts = flat.split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
