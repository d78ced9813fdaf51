"""Gradients of both branches, and the sums over rows that they and the parameters need."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.rows import columns, entering, kept, load, put, real_rows, store, vector


@triton.jit
def arriving(
    grad, hat, w, b, rows, real, c, seed, threshold, scale,
    SITE: tl.constexpr, ACTIVATION: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The gradient of what the norms add up to: that of the output, through dropout and ReLU where they follow."""
    g = load(grad, rows, real, c, C, ACC)
    if ACTIVATION:
        passes = hat * vector(w, c, C, ACC)[None, :] + vector(b, c, C, ACC)[None, :] > 0.0
        if seed is not None:
            passes = passes & kept(seed, SITE, rows, c, threshold)
            g = g * scale
        g = tl.where(passes, g, 0.0)
    return g


@triton.jit
def leaving(g, hat, plain, along, stats, w, real, c, C: tl.constexpr, ACC: tl.constexpr):
    """∂u = γ/√(v+ε) ⊙ (g - (Σg + û Σgû)/n); without the last term where statistics were not the batch's."""
    n = vector(stats + 4 * C, c, C, ACC)
    share = tl.where(n >= 2.0, 1.0 / tl.maximum(n, 1.0), 0.0)
    factor = vector(stats + C, c, C, ACC) * vector(w, c, C, ACC)
    change = (g - ((plain * share)[None, :] + hat * (along * share)[None, :])) * factor[None, :]
    return tl.where(real[:, None], change, 0.0)


@triton.jit
def put_gradient(
    out, change, rows, valid, c, seed, threshold, scale, SITE: tl.constexpr, ACTIVATION: tl.constexpr, C: tl.constexpr
):
    """Write ∂h = drop(∂u), or ∂u where dropout followed the norm."""
    if not ACTIVATION:
        if seed is not None:
            change = tl.where(kept(seed, SITE, rows, c, threshold), change * scale, 0.0)
    store(out, rows, valid, c, change, C)


@triton.jit
def standardized(u, stats, c, C: tl.constexpr, ACC: tl.constexpr):
    """û."""
    return (u - vector(stats, c, C, ACC)[None, :]) * vector(stats + C, c, C, ACC)[None, :]


@triton.jit(do_not_specialize=["nodes", "t1", "t2", "s1", "s2"])
def backward_rows(
    x, h1, h2, mask, seed, grad, w1, b1, w2, stats, dx, d1, d2, sums, t1, t2, s1, s2, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, SITE: tl.constexpr, ACTIVATION: tl.constexpr,
    RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr, DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr,
    SUM: tl.constexpr, SPREAD: tl.constexpr,
):  # fmt: skip
    """The backward pass for a block of rows and channels.

    With SUM Σg and Σgû go into row ``chunk`` of ``sums`` [chunks, 4, C] as β, γ of the first, β, γ of the second; with
    SPREAD gradients of rows are written, from the sums just made or, without SUM, from ``sums`` [4, C].
    """
    x1, x2 = x if RESIDUAL1 else None, x if RESIDUAL2 else None
    seed1, seed2 = seed if DROPOUT1 else None, seed if DROPOUT2 else None
    ACC: tl.constexpr = stats.dtype.element_ty
    rows, c = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid, real = real_rows(mask, rows, nodes)
    stats2 = stats + 5 * C
    u = entering(x1, h1, rows, real, c, seed1, t1, s1, SITE, ACTIVATION, C, ACC)
    hat = standardized(u, stats, c, C, ACC)
    g = arriving(grad, hat, w1, b1, rows, real, c, seed1, t1, s1, SITE, ACTIVATION, C, ACC)
    if SUM:
        chunk = sums + tl.program_id(0).to(tl.int64) * (4 * C)
        plain, along = tl.sum(g, 0), tl.sum(g * hat, 0)
        put(chunk, c, plain, C, True)
        put(chunk + C, c, along, C, True)
    else:
        plain, along = vector(sums, c, C, ACC), vector(sums + C, c, C, ACC)
    if SPREAD:
        total = leaving(g, hat, plain, along, stats, w1, real, c, C, ACC)
        put_gradient(d1, total, rows, valid, c, seed1, t1, s1, SITE, ACTIVATION, C)
        if x1 is None:
            total = tl.zeros_like(total)
    if h2 is not None:
        u = entering(x2, h2, rows, real, c, seed2, t2, s2, SITE + 1, False, C, ACC)
        hat = standardized(u, stats2, c, C, ACC)
        if SUM:
            along = tl.sum(g * hat, 0)
            put(chunk + 2 * C, c, plain, C, True)
            put(chunk + 3 * C, c, along, C, True)
        else:
            along = vector(sums + 3 * C, c, C, ACC)
        if SPREAD:
            change = leaving(g, hat, plain, along, stats2, w2, real, c, C, ACC)
            put_gradient(d2, change, rows, valid, c, seed2, t2, s2, SITE + 1, False, C)
            if x2 is not None:
                total += change
    if SPREAD:
        if dx is not None:
            store(dx, rows, valid, c, total, C)
