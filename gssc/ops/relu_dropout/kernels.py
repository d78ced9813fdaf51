"""Random bits by place, and ReLU with dropout. Imported only where it runs: see ``fused.py``."""

import triton
import triton.language as tl


@triton.jit
def mixed(x):
    """A bijection of 32-bit numbers in which every bit depends on every other."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def kept(seed, SITE: tl.constexpr, rows, c, threshold):
    """Which entries of a block [rows, channels] dropout leaves: see ``naive.kept``."""
    low = tl.load(seed).to(tl.uint32, bitcast=True)
    high = tl.load(seed + 1).to(tl.uint32, bitcast=True)
    site: tl.constexpr = (SITE * 0x9E3779B9) & 0xFFFFFFFF
    key = mixed(low + tl.full([], site, tl.uint32))
    by_row = mixed(rows.to(tl.int32).to(tl.uint32, bitcast=True) ^ key)
    bits = mixed((by_row[:, None] + c.to(tl.uint32, bitcast=True)[None, :] * 0x9E3779B9) ^ high)
    return (bits >> 8).to(tl.int32) >= threshold


@triton.jit(do_not_specialize=["rows", "threshold", "scale"])
def forward_rows(
    x, seed, out, rows, threshold, scale,
    SITE: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """drop(ReLU(x)) of a block."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    at = row[:, None] * C + c[None, :]
    inside = (row < rows)[:, None] & (c < C)[None, :]
    acc: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    value = tl.load(x + at, mask=inside, other=0.0).to(acc)
    # Not a maximum: what is not a number stays what it is, as in PyTorch.
    value = tl.where(value <= 0.0, 0.0, value)
    if DROPOUT:
        value = tl.where(kept(seed, SITE, row, c, threshold), value * scale, 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "threshold", "scale"])
def backward_rows(
    grad, x, seed, out, rows, threshold, scale,
    SITE: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """The gradient of x in a block."""
    row = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    at = row[:, None] * C + c[None, :]
    inside = (row < rows)[:, None] & (c < C)[None, :]
    acc: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    change = tl.load(grad + at, mask=inside, other=0.0).to(acc)
    passes = tl.load(x + at, mask=inside, other=0.0).to(acc) > 0.0
    if DROPOUT:
        passes = passes & kept(seed, SITE, row, c, threshold)
        change = change * scale
    tl.store(out + at, tl.where(passes, change, 0.0).to(out.dtype.element_ty), mask=inside)
