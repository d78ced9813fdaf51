"""Moments of what enters the norms, statistics in use, and the output."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.common import entering, real_rows
from gssc.ops.norm.kernels.rows import columns, kept, load, put, store, vector


@triton.jit
def settled(
    n, mean, squares, running_mean, running_variance, stats, c, EPS: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr
):
    """Mean and 1/√(variance + ε) to normalise by, from the moments of the batch; all five rows are written."""
    enough = n >= 2.0
    used = tl.where(enough, mean, vector(running_mean, c, C, ACC))
    variance = tl.where(enough, squares / tl.maximum(n, 1.0), vector(running_variance, c, C, ACC))
    inverse = 1.0 / tl.sqrt(variance + EPS)
    put(stats, c, used, C, True)
    put(stats + C, c, inverse, C, True)
    put(stats + 2 * C, c, mean, C, True)
    put(stats + 3 * C, c, squares, C, True)
    put(stats + 4 * C, c, tl.zeros_like(mean) + n, C, True)
    return used, inverse


@triton.jit
def moments(u, real, ACC: tl.constexpr):
    """Number, mean and Σ (u - mean)² of the real rows of a block; others are zero in u."""
    n = tl.sum(real.to(ACC), 0)
    mean = tl.sum(u, 0) / tl.maximum(n, 1.0)
    away = tl.where(real[:, None], u - mean[None, :], 0.0)
    return n, mean, tl.sum(away * away, 0)


@triton.jit
def normalized(u, mean, inverse, weight, bias, c, C: tl.constexpr, ACC: tl.constexpr):
    """γ û + β."""
    factor = inverse * vector(weight, c, C, ACC)
    return (u - mean[None, :]) * factor[None, :] + vector(bias, c, C, ACC)[None, :]


@triton.jit
def put_output(
    out, value, x, rows, valid, real, c, seed, threshold, scale,
    SITE: tl.constexpr, RESIDUAL: tl.constexpr, DROPOUT: tl.constexpr, ACTIVATION: tl.constexpr,
    C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Write what the norms add up to: as it is, or x + drop(ReLU(·)). Padding rows of the former are zero."""
    if ACTIVATION:
        value = tl.where(value <= 0.0, 0.0, value)
        if DROPOUT:
            value = tl.where(kept(seed, SITE, rows, c, threshold), value * scale, 0.0)
    value = tl.where(real[:, None], value, 0.0)
    if ACTIVATION:
        if RESIDUAL:
            value += load(x, rows, valid, c, C, ACC)
    store(out, rows, valid, c, value, C)


@triton.jit(do_not_specialize=["nodes", "t1", "t2", "s1", "s2"])
def forward_held(
    x, h1, h2, mask, seed, w1, b1, m1, v1, w2, b2, m2, v2, stats, out, t1, t2, s1, s2, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr, SITE: tl.constexpr,
    EPS: tl.constexpr, HAS_MASK: tl.constexpr, TWO: tl.constexpr, RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr,
    DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """The whole op for a few channels, of which one program holds all rows."""
    rows, c = tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid, real = real_rows(mask, rows, nodes, HAS_MASK)
    before: tl.constexpr = not ACTIVATION
    u = entering(x, h1, rows, real, c, seed, t1, s1, SITE, RESIDUAL1 and before, DROPOUT1 and before, C, ACC)
    n, mean, squares = moments(u, real, ACC)
    mean, inverse = settled(n, mean, squares, m1, v1, stats, c, EPS, C, ACC)
    value = normalized(u, mean, inverse, w1, b1, c, C, ACC)
    if TWO:
        u = entering(x, h2, rows, real, c, seed, t2, s2, SITE + 1, RESIDUAL2, DROPOUT2, C, ACC)
        n, mean, squares = moments(u, real, ACC)
        mean, inverse = settled(n, mean, squares, m2, v2, stats + 5 * C, c, EPS, C, ACC)
        value += normalized(u, mean, inverse, w2, b2, c, C, ACC)
    put_output(out, value, x, rows, valid, real, c, seed, t1, s1, SITE, RESIDUAL1, DROPOUT1, ACTIVATION, C, ACC)


@triton.jit
def put_moments(
    x, h, mask, seed, partial, first, last, c, threshold, scale,
    SITE: tl.constexpr, RESIDUAL: tl.constexpr, DROPOUT: tl.constexpr, HAS_MASK: tl.constexpr,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Moments of the rows of a chunk, merged block by block (Chan, Golub and LeVeque)."""
    n = tl.zeros([], dtype=ACC)
    mean = tl.zeros([BLOCK_C], dtype=ACC)
    squares = tl.zeros([BLOCK_C], dtype=ACC)
    for start in range(first, last, BLOCK_N):
        rows = start + tl.arange(0, BLOCK_N)
        _, real = real_rows(mask, rows, last, HAS_MASK)
        u = entering(x, h, rows, real, c, seed, threshold, scale, SITE, RESIDUAL, DROPOUT, C, ACC)
        more, center, deviations = moments(u, real, ACC)
        total = n + more
        part = more / tl.maximum(total, 1.0)
        away = center - mean
        mean += away * part
        squares += deviations + away * away * (n * part)
        n = total
    put(partial, c, tl.zeros_like(mean) + n, C, True)
    put(partial + C, c, mean, C, True)
    put(partial + 2 * C, c, squares, C, True)


@triton.jit(do_not_specialize=["nodes", "share", "t1", "t2", "s1", "s2"])
def forward_moments(
    x, h1, h2, mask, seed, partial, t1, t2, s1, s2, nodes, share,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr, SITE: tl.constexpr,
    EPS: tl.constexpr, HAS_MASK: tl.constexpr, TWO: tl.constexpr, RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr,
    DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Moments of a share of the rows into ``partial`` [chunks, B, 3, C]."""
    c, chunk = columns(BLOCK_C), tl.program_id(0).to(tl.int64)
    first = tl.program_id(0) * share
    last = tl.minimum(first + share, nodes)
    branches: tl.constexpr = 2 if TWO else 1
    before: tl.constexpr = not ACTIVATION
    own = partial + chunk * (branches * 3 * C)
    put_moments(
        x, h1, mask, seed, own, first, last, c, t1, s1,
        SITE, RESIDUAL1 and before, DROPOUT1 and before, HAS_MASK, C, BLOCK_N, BLOCK_C, ACC,
    )  # fmt: skip
    if TWO:
        put_moments(
            x, h2, mask, seed, own + 3 * C, first, last, c, t2, s2,
            SITE + 1, RESIDUAL2, DROPOUT2, HAS_MASK, C, BLOCK_N, BLOCK_C, ACC,
        )  # fmt: skip


@triton.jit
def merged(
    partial, chunks, running_mean, running_variance, stats, c,
    EPS: tl.constexpr, STRIDE: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Moments of all chunks of one branch, in a fixed order, and what to normalise by."""
    number = tl.zeros([ROWS, BLOCK_C], dtype=ACC)
    total = tl.zeros([ROWS, BLOCK_C], dtype=ACC)
    for first in range(0, chunks, ROWS):
        chunk = first + tl.arange(0, ROWS)
        at = partial + chunk.to(tl.int64)[:, None] * STRIDE + c[None, :]
        inside = (chunk < chunks)[:, None] & (c < C)[None, :]
        n = tl.load(at, mask=inside, other=0.0)
        number += n
        total += n * tl.load(at + C, mask=inside, other=0.0)
    n_all = tl.sum(number, 0)
    mean = tl.sum(total, 0) / tl.maximum(n_all, 1.0)
    total = tl.zeros([ROWS, BLOCK_C], dtype=ACC)
    for first in range(0, chunks, ROWS):
        chunk = first + tl.arange(0, ROWS)
        at = partial + chunk.to(tl.int64)[:, None] * STRIDE + c[None, :]
        inside = (chunk < chunks)[:, None] & (c < C)[None, :]
        away = tl.load(at + C, mask=inside, other=0.0) - mean[None, :]
        total += tl.load(at + 2 * C, mask=inside, other=0.0) + tl.load(at, mask=inside, other=0.0) * away * away
    settled(n_all, mean, tl.sum(total, 0), running_mean, running_variance, stats, c, EPS, C, ACC)


@triton.jit(do_not_specialize=["chunks"])
def forward_merge(
    partial, m1, v1, m2, v2, stats, chunks,
    EPS: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr, TWO: tl.constexpr,
):  # fmt: skip
    """Statistics from ``partial``."""
    c = columns(BLOCK_C)
    stride: tl.constexpr = (6 if TWO else 3) * C
    merged(partial, chunks, m1, v1, stats, c, EPS, stride, C, ROWS, BLOCK_C, ACC)
    if TWO:
        merged(partial + 3 * C, chunks, m2, v2, stats + 5 * C, c, EPS, stride, C, ROWS, BLOCK_C, ACC)


@triton.jit
def in_use(
    running_mean,
    running_variance,
    stats,
    c,
    EPS: tl.constexpr,
    RUNNING: tl.constexpr,
    C: tl.constexpr,
    ACC: tl.constexpr,
):
    """Mean and 1/√(variance + ε) to normalise by: those of ``stats``, or the running ones, then written there."""
    if RUNNING:
        mean = vector(running_mean, c, C, ACC)
        inverse = 1.0 / tl.sqrt(vector(running_variance, c, C, ACC) + EPS)
        first = tl.program_id(0) == 0
        put(stats, c, mean, C, first)
        put(stats + C, c, inverse, C, first)
        for row in tl.static_range(2, 5):
            put(stats + row * C, c, tl.zeros_like(mean), C, first)
    else:
        mean, inverse = vector(stats, c, C, ACC), vector(stats + C, c, C, ACC)
    return mean, inverse


@triton.jit(do_not_specialize=["nodes", "t1", "t2", "s1", "s2"])
def forward_apply(
    x, h1, h2, mask, seed, w1, b1, m1, v1, w2, b2, m2, v2, stats, out, t1, t2, s1, s2, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr, SITE: tl.constexpr,
    EPS: tl.constexpr, HAS_MASK: tl.constexpr, TWO: tl.constexpr, RESIDUAL1: tl.constexpr, RESIDUAL2: tl.constexpr,
    DROPOUT1: tl.constexpr, DROPOUT2: tl.constexpr, ACTIVATION: tl.constexpr, RUNNING: tl.constexpr,
):  # fmt: skip
    """The op for a block, from known statistics."""
    rows, c = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid, real = real_rows(mask, rows, nodes, HAS_MASK)
    before: tl.constexpr = not ACTIVATION
    mean, inverse = in_use(m1, v1, stats, c, EPS, RUNNING, C, ACC)
    u = entering(x, h1, rows, real, c, seed, t1, s1, SITE, RESIDUAL1 and before, DROPOUT1 and before, C, ACC)
    value = normalized(u, mean, inverse, w1, b1, c, C, ACC)
    if TWO:
        mean, inverse = in_use(m2, v2, stats + 5 * C, c, EPS, RUNNING, C, ACC)
        u = entering(x, h2, rows, real, c, seed, t2, s2, SITE + 1, RESIDUAL2, DROPOUT2, C, ACC)
        value += normalized(u, mean, inverse, w2, b2, c, C, ACC)
    put_output(out, value, x, rows, valid, real, c, seed, t1, s1, SITE, RESIDUAL1, DROPOUT1, ACTIVATION, C, ACC)
