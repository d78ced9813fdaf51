"""Blocks of rows and channels, random bits by place, scales by degree; imported where they run."""

import triton
import triton.language as tl


@triton.jit
def columns(BLOCK_C: tl.constexpr):
    """Channels of this program; rows are the first axis of a grid."""
    return tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)


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
def mixed(x):
    """A bijection of 32-bit numbers in which every bit depends on every other."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def kept(seed, SITE: tl.constexpr, rows, c, threshold):
    """Which entries of a block [rows, channels] dropout leaves: see ``gssc/ops/random.py``."""
    low = tl.load(seed).to(tl.uint32, bitcast=True)
    high = tl.load(seed + 1).to(tl.uint32, bitcast=True)
    site: tl.constexpr = (SITE * 0x9E3779B9) & 0xFFFFFFFF
    key = mixed(low + tl.full([], site, tl.uint32))
    by_row = mixed(rows.to(tl.int32).to(tl.uint32, bitcast=True) ^ key)
    bits = mixed((by_row[:, None] + c.to(tl.uint32, bitcast=True)[None, :] * 0x9E3779B9) ^ high)
    return (bits >> 8).to(tl.int32) >= threshold


@triton.jit
def real_rows(mask, rows, nodes):
    """Which rows exist, and which of these are real."""
    valid = rows < nodes
    real = valid
    if mask is not None:
        real = valid & (tl.load(mask + rows, mask=valid, other=0) != 0)
    return valid, real


@triton.jit
def entering(
    x, h, rows, real, c, seed, threshold, scale,
    SITE: tl.constexpr, ACTIVATION: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """What a branch normalises: x + drop(h), or h where these follow the norm and its activation."""
    u = load(h, rows, real, c, C, ACC)
    if not ACTIVATION:
        if seed is not None:
            u = tl.where(kept(seed, SITE, rows, c, threshold), u * scale, 0.0)
        if x is not None:
            u += load(x, rows, real, c, C, ACC)
    return u


@triton.jit(do_not_specialize=["nodes"])
def scale_rows(
    x, grad, a, b, degree, out, sums, nodes, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """X ⊙ (a + b log(1 + d)) for a block; with ``grad``, ∂x, and its part of ∂a and ∂b into ``sums`` [blocks, 2, C]."""
    acc: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    rows, c = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid = rows < nodes
    logs = tl.log(1.0 + tl.load(degree + rows, mask=valid, other=0.0).to(acc))[:, None]
    value = load(x, rows, valid, c, C, acc)
    if grad is not None:
        g = load(grad, rows, valid, c, C, acc)
        along = g * value
        block = sums + tl.program_id(0).to(tl.int64) * (2 * C)
        put(block, c, tl.sum(along, 0), C, True)
        put(block + C, c, tl.sum(along * logs, 0), C, True)
        value = g
    store(out, rows, valid, c, value * (vector(a, c, C, acc)[None, :] + vector(b, c, C, acc)[None, :] * logs), C)
