"""Gradients of both branches, and the sums over rows that they and the parameters need."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.common import entering, real_rows
from gssc.ops.norm.kernels.rows import columns, kept, load, put, store, vector


@triton.jit
def arriving(
    grad, hat, w, b, rows, real, c, seed, threshold, scale,
    SITE: tl.constexpr, DROPOUT: tl.constexpr, ACTIVATION: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of what the norms add up to: that of the output, through dropout and ReLU where they follow."""
    g = load(grad, rows, real, c, C, ACC)
    if ACTIVATION:
        passes = hat * vector(w, c, C, ACC)[None, :] + vector(b, c, C, ACC)[None, :] > 0.0
        if DROPOUT:
            passes = passes & kept(seed, SITE, rows, c, threshold)
            g = g * scale
        g = tl.where(passes, g, 0.0)
    return g


@triton.jit
def leaving(
    g, hat, plain, along, stats, w, real, c, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """∂u = γ/√(v+ε) ⊙ (g - (Σg + û Σgû)/n); without the last term where statistics were not the batch's."""
    n = vector(stats + 4 * C, c, C, ACC)
    share = tl.where(n >= 2.0, 1.0 / tl.maximum(n, 1.0), 0.0)
    factor = vector(stats + C, c, C, ACC) * vector(w, c, C, ACC)
    change = (g - ((plain * share)[None, :] + hat * (along * share)[None, :])) * factor[None, :]
    return tl.where(real[:, None], change, 0.0)


@triton.jit
def put_gradient(
    out, change, rows, valid, c, seed, threshold, scale,
    SITE: tl.constexpr, DROPOUT: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Write ∂h = drop(∂u)."""
    if DROPOUT:
        change = tl.where(kept(seed, SITE, rows, c, threshold), change * scale, 0.0)
    store(out, rows, valid, c, change, C)


@triton.jit
def standardized(u, stats, c, C: tl.constexpr, ACC: tl.constexpr):
    """û."""
    return (u - vector(stats, c, C, ACC)[None, :]) * vector(stats + C, c, C, ACC)[None, :]


@triton.jit(do_not_specialize=["nodes", "t1", "t2", "s1", "s2"])
def backward_rows(
    grad, x, h1, h2, mask, seed, w1, b1, w2, stats, dx, d1, d2, sums, t1, t2, s1, s2, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr, SITE: tl.constexpr,
    EPS: tl.constexpr, HAS_MASK: tl.constexpr, TWO: tl.constexpr, RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr,
    DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr, ACTIVATION: tl.constexpr, SUM: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """The backward pass for a block of rows and channels.

    With SUM Σg and Σgû go into row ``chunk`` of ``sums`` [chunks, 4, C] as β, γ of the first, β, γ of the second; with
    SPREAD gradients of rows are written, from the sums just made or, without SUM, from ``sums`` [4, C].
    """
    rows, c = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid, real = real_rows(mask, rows, nodes, HAS_MASK)
    before: tl.constexpr = not ACTIVATION
    stats2 = stats + 5 * C
    u = entering(x, h1, rows, real, c, seed, t1, s1, SITE, RESIDUAL1 and before, DROPOUT1 and before, C, ACC)
    hat = standardized(u, stats, c, C, ACC)
    g = arriving(grad, hat, w1, b1, rows, real, c, seed, t1, s1, SITE, DROPOUT1, ACTIVATION, C, ACC)
    if SUM:
        own = sums + tl.program_id(0).to(tl.int64) * (4 * C)
        plain, along = tl.sum(g, 0), tl.sum(g * hat, 0)
        put(own, c, plain, C, True)
        put(own + C, c, along, C, True)
    else:
        plain, along = vector(sums, c, C, ACC), vector(sums + C, c, C, ACC)
    if SPREAD:
        total = leaving(g, hat, plain, along, stats, w1, real, c, C, ACC)
        put_gradient(d1, total, rows, valid, c, seed, t1, s1, SITE, DROPOUT1 and before, C)
        if not RESIDUAL1:
            total = tl.zeros_like(total)
    if TWO:
        u = entering(x, h2, rows, real, c, seed, t2, s2, SITE + 1, RESIDUAL2, DROPOUT2, C, ACC)
        hat = standardized(u, stats2, c, C, ACC)
        if SUM:
            along = tl.sum(g * hat, 0)
            put(own + 2 * C, c, plain, C, True)
            put(own + 3 * C, c, along, C, True)
        else:
            along = vector(sums + 3 * C, c, C, ACC)
        if SPREAD:
            change = leaving(g, hat, plain, along, stats2, w2, real, c, C, ACC)
            put_gradient(d2, change, rows, valid, c, seed, t2, s2, SITE + 1, DROPOUT2, C)
            if RESIDUAL2:
                total += change
    if SPREAD:
        if before and (RESIDUAL1 or RESIDUAL2):
            store(dx, rows, valid, c, total, C)
