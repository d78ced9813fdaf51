"""What the kernels of norms of residuals share: real rows, and what enters a norm."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.rows import kept, load


@triton.jit
def real_rows(mask, rows, nodes, HAS_MASK: tl.constexpr):
    """Which rows exist, and which of these are real."""
    valid = rows < nodes
    real = valid
    if HAS_MASK:
        real = valid & (tl.load(mask + rows, mask=valid, other=0) != 0)
    return valid, real


@triton.jit
def entering(
    x, h, rows, real, c, seed, threshold, scale,
    SITE: tl.constexpr, RESIDUAL: tl.constexpr, DROPOUT: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """What a branch normalises: x + drop(h)."""
    u = load(h, rows, real, c, C, ACC)
    if DROPOUT:
        u = tl.where(kept(seed, SITE, rows, c, threshold), u * scale, 0.0)
    if RESIDUAL:
        u += load(x, rows, real, c, C, ACC)
    return u
