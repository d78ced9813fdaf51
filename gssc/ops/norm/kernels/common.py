"""What the kernels of norms of residuals share: rows, channels, and what enters a norm."""

import triton
import triton.language as tl

from gssc.ops.relu_dropout.kernels import kept


@triton.jit
def columns(BLOCK_C: tl.constexpr):
    """Channels of this program; rows are the first axis of a grid."""
    return tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)


@triton.jit
def real_rows(mask, rows, nodes, HAS_MASK: tl.constexpr):
    """Which rows exist, and which of these are real."""
    valid = rows < nodes
    real = valid
    if HAS_MASK:
        real = valid & (tl.load(mask + rows, mask=valid, other=0) != 0)
    return valid, real


@triton.jit
def load(base, rows, chosen, c, C: tl.constexpr, ACC: tl.constexpr):
    """A block, zero where rows are not chosen."""
    at = rows.to(tl.int64)[:, None] * C + c[None, :]
    return tl.load(base + at, mask=chosen[:, None] & (c < C)[None, :], other=0.0).to(ACC)


@triton.jit
def store(base, rows, chosen, c, value, C: tl.constexpr):
    """Write a block, in the dtype of the tensor."""
    at = rows.to(tl.int64)[:, None] * C + c[None, :]
    tl.store(base + at, value.to(base.dtype.element_ty), mask=chosen[:, None] & (c < C)[None, :])


@triton.jit
def vector(base, c, C: tl.constexpr, ACC: tl.constexpr):
    """A row [C]."""
    return tl.load(base + c, mask=c < C, other=0.0).to(ACC)


@triton.jit
def put(base, c, value, C: tl.constexpr, writes):
    """Write a row [C]."""
    tl.store(base + c, value.to(base.dtype.element_ty), mask=(c < C) & writes)


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
