"""Moments of what enters the norms, statistics in use, the output, and running statistics, which move on after it."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.rows import columns, entering, kept, load, put, real_rows, store, vector


@triton.jit
def settled(
    n, mean, squares, running_mean, running_variance, batches, stats, c, writes,
    EPS: tl.constexpr, MOMENTUM: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Mean and 1/√(variance + ε) to normalise by, from the moments of the batch; one program writes all five rows.

    With ``batches``, which counts them, running statistics move on, if this one had two rows and more.
    """
    enough = n >= 2.0
    old_mean, old_variance = vector(running_mean, c, C, ACC), vector(running_variance, c, C, ACC)
    used = tl.where(enough, mean, old_mean)
    variance = tl.where(enough, squares / tl.maximum(n, 1.0), old_variance)
    inverse = 1.0 / tl.sqrt(variance + EPS)
    put(stats, c, used, C, writes)
    put(stats + C, c, inverse, C, writes)
    put(stats + 2 * C, c, mean, C, writes)
    put(stats + 3 * C, c, squares, C, writes)
    put(stats + 4 * C, c, tl.zeros_like(mean) + n, C, writes)
    if batches is not None:
        step = tl.full([], MOMENTUM, dtype=ACC)
        unbiased = squares / tl.maximum(n - 1.0, 1.0)
        put(running_mean, c, tl.where(enough, (1.0 - step) * old_mean + step * mean, old_mean), C, writes)
        put(
            running_variance,
            c,
            tl.where(enough, (1.0 - step) * old_variance + step * unbiased, old_variance),
            C,
            writes,
        )
        rows = tl.max(tl.zeros_like(mean) + n, 0)
        tl.atomic_add(batches, 1, mask=(rows >= 2.0) & (tl.program_id(1) == 0))
    return used, inverse


@triton.jit
def moments_of(u, real, ACC: tl.constexpr):
    """Number, mean and Σ (u - mean)² of the real rows of a block; others are zero in u."""
    n = tl.sum(real.to(ACC), 0)
    mean = tl.sum(u, 0) / tl.maximum(n, 1.0)
    away = tl.where(real[:, None], u - mean[None, :], 0.0)
    return n, mean, tl.sum(away * away, 0)


@triton.jit
def combined(n, mean, squares, more, center, deviations):
    """Moments of both of two sets of rows (Chan, Golub and LeVeque)."""
    part = more / tl.maximum(n + more, 1.0)
    away = center - mean
    return n + more, mean + away * part, squares + deviations + away * away * (n * part)


@triton.jit
def normalized(
    u, real, weight, bias, running_mean, running_variance, batches, stats, c,
    HELD: tl.constexpr, RUNNING: tl.constexpr, EPS: tl.constexpr, MOMENTUM: tl.constexpr, C: tl.constexpr,
    BLOCK_C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """γ û + β, by the moments of u (HELD, where it is all there is), the running statistics, or those in ``stats``."""
    if HELD:
        n, mean, squares = moments_of(u, real, ACC)
        mean, inverse = settled(
            n, mean, squares, running_mean, running_variance, batches, stats, c, True, EPS, MOMENTUM, C, ACC
        )
    elif RUNNING:
        n, none, writes = tl.zeros([], dtype=ACC), tl.zeros([BLOCK_C], dtype=ACC), tl.program_id(0) == 0
        mean, inverse = settled(
            n, none, none, running_mean, running_variance, None, stats, c, writes, EPS, MOMENTUM, C, ACC
        )
    else:
        mean, inverse = vector(stats, c, C, ACC), vector(stats + C, c, C, ACC)
    factor = inverse * vector(weight, c, C, ACC)
    return (u - mean[None, :]) * factor[None, :] + vector(bias, c, C, ACC)[None, :]


@triton.jit(do_not_specialize=["nodes", "t1", "t2", "s1", "s2"])
def forward_rows(
    x, h1, h2, mask, seed, w1, b1, m1, v1, n1, w2, b2, m2, v2, n2, stats, out, t1, t2, s1, s2, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, SITE: tl.constexpr, ACTIVATION: tl.constexpr,
    RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr, DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr,
    EPS: tl.constexpr, MOMENTUM: tl.constexpr, HELD: tl.constexpr, RUNNING: tl.constexpr,
):  # fmt: skip
    """The op for a block: all rows of a few channels (HELD), or from statistics that are known."""
    x1, x2 = x if RESIDUAL1 else None, x if RESIDUAL2 else None
    seed1, seed2 = seed if DROPOUT1 else None, seed if DROPOUT2 else None
    ACC: tl.constexpr = stats.dtype.element_ty
    rows, c = tl.arange(0, BLOCK_N), columns(BLOCK_C)
    if not HELD:
        rows += tl.program_id(0) * BLOCK_N
    valid, real = real_rows(mask, rows, nodes)
    u = entering(x1, h1, rows, real, c, seed1, t1, s1, SITE, ACTIVATION, C, ACC)
    value = normalized(u, real, w1, b1, m1, v1, n1, stats, c, HELD, RUNNING, EPS, MOMENTUM, C, BLOCK_C, ACC)
    if h2 is not None:
        u = entering(x2, h2, rows, real, c, seed2, t2, s2, SITE + 1, False, C, ACC)
        stats2 = stats + 5 * C
        value += normalized(u, real, w2, b2, m2, v2, n2, stats2, c, HELD, RUNNING, EPS, MOMENTUM, C, BLOCK_C, ACC)
    if ACTIVATION:
        value = tl.where(value <= 0.0, 0.0, value)
        if seed1 is not None:
            value = tl.where(kept(seed1, SITE, rows, c, t1), value * s1, 0.0)
    value = tl.where(real[:, None], value, 0.0)
    if ACTIVATION:
        if x1 is not None:
            value += load(x1, rows, valid, c, C, ACC)
    store(out, rows, valid, c, value, C)


@triton.jit
def put_moments(
    x, h, mask, seed, partial, first, last, c, threshold, scale,
    SITE: tl.constexpr, ACTIVATION: tl.constexpr,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Moments of the rows of a chunk, combined block by block."""
    n = tl.zeros([], dtype=ACC)
    mean = tl.zeros([BLOCK_C], dtype=ACC)
    squares = tl.zeros([BLOCK_C], dtype=ACC)
    for start in range(first, last, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        _, real = real_rows(mask, rows, last)
        u = entering(x, h, rows, real, c, seed, threshold, scale, SITE, ACTIVATION, C, ACC)
        more, center, deviations = moments_of(u, real, ACC)
        n, mean, squares = combined(n, mean, squares, more, center, deviations)
    put(partial, c, tl.zeros_like(mean) + n, C, True)
    put(partial + C, c, mean, C, True)
    put(partial + 2 * C, c, squares, C, True)


@triton.jit(do_not_specialize=["share", "nodes", "t1", "t2", "s1", "s2"])
def forward_moments(
    x, h1, h2, mask, seed, partial, share, t1, t2, s1, s2, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, SITE: tl.constexpr, ACTIVATION: tl.constexpr,
    RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr, DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr,
):  # fmt: skip
    """Moments of a share of the rows into ``partial`` [chunks, B, 3, C]."""
    x1, x2 = x if RESIDUAL1 else None, x if RESIDUAL2 else None
    seed1, seed2 = seed if DROPOUT1 else None, seed if DROPOUT2 else None
    ACC: tl.constexpr = partial.dtype.element_ty
    c, chunk = columns(BLOCK_C), tl.program_id(0).to(tl.int64)
    first = tl.program_id(0) * share
    last = tl.minimum(first + share, nodes)
    branches: tl.constexpr = 1 if h2 is None else 2
    at = partial + chunk * (branches * 3 * C)
    put_moments(x1, h1, mask, seed1, at, first, last, c, t1, s1, SITE, ACTIVATION, C, BLOCK_N, BLOCK_C, ACC)
    if h2 is not None:
        at2 = at + 3 * C
        put_moments(x2, h2, mask, seed2, at2, first, last, c, t2, s2, SITE + 1, False, C, BLOCK_N, BLOCK_C, ACC)


@triton.jit
def merged(
    partial, chunks, running_mean, running_variance, batches, stats, c,
    EPS: tl.constexpr, MOMENTUM: tl.constexpr, STRIDE: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr,
    BLOCK_C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Moments of all chunks of one branch, in a fixed order, and what to normalise by."""
    n_all, mean, squares = (
        tl.zeros([BLOCK_C], dtype=ACC),
        tl.zeros([BLOCK_C], dtype=ACC),
        tl.zeros([BLOCK_C], dtype=ACC),
    )
    for first in range(0, chunks, ROWS):
        chunk = first + tl.arange(0, ROWS)
        at = partial + chunk.to(tl.int64)[:, None] * STRIDE + c[None, :]
        inside = (chunk < chunks)[:, None] & (c < C)[None, :]
        n, means = tl.load(at, mask=inside, other=0.0), tl.load(at + C, mask=inside, other=0.0)
        deviations = tl.load(at + 2 * C, mask=inside, other=0.0)
        more = tl.sum(n, 0)
        center = tl.sum(n * means, 0) / tl.maximum(more, 1.0)
        away = means - center[None, :]
        deviations = tl.sum(deviations + n * away * away, 0)
        n_all, mean, squares = combined(n_all, mean, squares, more, center, deviations)
    settled(n_all, mean, squares, running_mean, running_variance, batches, stats, c, True, EPS, MOMENTUM, C, ACC)


@triton.jit(do_not_specialize=["chunks"])
def forward_merge(
    partial, m1, v1, n1, m2, v2, n2, stats, chunks,
    EPS: tl.constexpr, MOMENTUM: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Statistics from ``partial``."""
    ACC: tl.constexpr = partial.dtype.element_ty
    c = columns(BLOCK_C)
    stride: tl.constexpr = (3 if m2 is None else 6) * C
    merged(partial, chunks, m1, v1, n1, stats, c, EPS, MOMENTUM, stride, C, ROWS, BLOCK_C, ACC)
    if m2 is not None:
        partial2, stats2 = partial + 3 * C, stats + 5 * C
        merged(partial2, chunks, m2, v2, n2, stats2, c, EPS, MOMENTUM, stride, C, ROWS, BLOCK_C, ACC)
