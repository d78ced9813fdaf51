"""Triton kernels of Linears that share their input. Imported only where they run: see ``triton.py``.

Y = [x W₀ᵀ + b₀ | x W₁ᵀ + b₁ | …] for up to four weights [C, D], which stand where modules keep them; Y and its gradient
are [N, PARTS · C].
"""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.rows import kept


@triton.jit
def block(base, rows, columns, height, WIDTH: tl.constexpr):
    """A block of a [height, WIDTH] tensor as float32, zero outside."""
    mask = (rows < height)[:, None] & (columns < WIDTH)[None, :]
    return tl.load(base + rows.to(tl.int64)[:, None] * WIDTH + columns[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def column_block(base, part, rows, c, height, C: tl.constexpr, PARTS: tl.constexpr):
    """A block of one part of a [height, PARTS · C] tensor as float32, zero outside."""
    mask = (rows < height)[:, None] & (c < C)[None, :]
    at = base + rows.to(tl.int64)[:, None] * (PARTS * C) + (part * C + c)[None, :]
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def put_block(base, rows, columns, height, value, WIDTH: tl.constexpr):
    """Write a block, in the dtype of the tensor."""
    mask = (rows < height)[:, None] & (columns < WIDTH)[None, :]
    at = base + rows.to(tl.int64)[:, None] * WIDTH + columns[None, :]
    tl.store(at, value.to(base.dtype.element_ty), mask=mask)


@triton.jit
def chosen(part, t0, t1, t2, t3):
    """One of the tensors of up to four parts."""
    tensor = t0
    if t1 is not None:
        if part == 1:
            tensor = t1
    if t2 is not None:
        if part == 2:
            tensor = t2
    if t3 is not None:
        if part == 3:
            tensor = t3
    return tensor


@triton.jit(do_not_specialize=["rows", "threshold", "rescale"])
def forward(
    x, w0, w1, w2, w3, b0, b1, b2, b3, seed, out, threshold, rescale, rows,
    D: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK: tl.constexpr,
    STEP: tl.constexpr, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr, SITE: tl.constexpr,
):  # fmt: skip
    """A block of Y; with ACTIVATION drop(ReLU(Y)), of one part."""
    blocks: tl.constexpr = (C + BLOCK - 1) // BLOCK
    part = tl.program_id(1) // blocks
    weight = chosen(part, w0, w1, w2, w3)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    c = tl.program_id(1) % blocks * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK_N, BLOCK], dtype=tl.float32)
    for first in range(0, D, STEP):
        d = first + tl.arange(0, STEP)
        turned = tl.trans(block(weight, c, d, C, D))
        total = tl.dot(block(x, n, d, rows, D), turned, total, input_precision=PRECISION)
    if b0 is not None:
        total += tl.load(chosen(part, b0, b1, b2, b3) + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION:
        total = tl.where(total <= 0.0, 0.0, total)  # what is no number stays so
        if seed is not None:
            total = tl.where(kept(seed, SITE, n, c, threshold), total * rescale, 0.0)
    at = out + n.to(tl.int64)[:, None] * (PARTS * C) + (part * C + c)[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=(n < rows)[:, None] & (c < C)[None, :])


@triton.jit(do_not_specialize=["rescale", "share", "rows"])
def backward(
    grad, x, w0, w1, w2, w3, added, hidden, d_x, sums, rescale, share, rows,
    D: tl.constexpr, C: tl.constexpr, PARTS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK: tl.constexpr,
    STEP: tl.constexpr, PRECISION: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """∂x = Σ ∂Y W, of a block of rows, or ∂W = ∂Yᵀ x and ∂b = Σ ∂Y, of a block of a weight over a share of the rows.

    The latter stand behind each other in one row of ``sums`` for every share: [PARTS · C, D], then [PARTS · C]. To ∂x
    what is ``added`` comes; where x was drop(ReLU(·)), ``hidden``, it is that of what stood before. ∂x or
    ``sums`` may be absent.
    """
    blocks: tl.constexpr = (C + BLOCK - 1) // BLOCK
    wide: tl.constexpr = (D + BLOCK - 1) // BLOCK
    steps: tl.constexpr = (C + STEP - 1) // STEP
    by_rows = (rows + BLOCK_N - 1) // BLOCK_N * wide
    program = tl.program_id(0)
    if d_x is None:
        by_rows = 0
    d = program % wide * BLOCK + tl.arange(0, BLOCK)  # both kinds are numbered by blocks of D first
    if program < by_rows:
        n = program // wide * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros([BLOCK_N, BLOCK], dtype=tl.float32)
        for step in range(PARTS * steps):
            part, c = step // steps, step % steps * STEP + tl.arange(0, STEP)
            weight = block(chosen(part, w0, w1, w2, w3), c, d, C, D)
            total = tl.dot(column_block(grad, part, n, c, rows, C, PARTS), weight, total, input_precision=PRECISION)
        if hidden is not None:
            total = tl.where(block(hidden, n, d, rows, D) > 0.0, total * rescale, 0.0)
        if added is not None:
            total += block(added, n, d, rows, D)
        if d_x is not None:
            put_block(d_x, n, d, rows, total, D)
    elif sums is not None:
        place = (program - by_rows) // wide
        number = place // (PARTS * blocks)
        part, c = place // blocks % PARTS, place % blocks * BLOCK + tl.arange(0, BLOCK)
        weighted = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
        plain = tl.zeros([BLOCK], dtype=tl.float32)
        last = tl.minimum((number + 1) * share, rows)
        for first in range(number * share, last, BLOCK_N):
            n = first + tl.arange(0, BLOCK_N)
            g = column_block(grad, part, n, c, last, C, PARTS)
            weighted = tl.dot(tl.trans(g), block(x, n, d, rows, D), weighted, input_precision=PRECISION)
            plain += tl.sum(g, 0)
        d_weight = sums + number.to(tl.int64) * (PARTS * C * (D + BIASED))
        put_block(d_weight + part * (C * D), c, d, C, weighted, D)
        if BIASED:
            mask = (c < C) & ((program - by_rows) % wide == 0)
            tl.store(d_weight + PARTS * C * D + part * C + c, plain.to(sums.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["stride", "share", "rows", "width"])
def column_sums(x, out, stride, share, rows, width, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    """Sums over a share of the rows of some columns, into a row of ``out`` [shares, width]."""
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    first = tl.program_id(1) * share
    last = tl.minimum(first + share, rows)
    ACC: tl.constexpr = tl.float64 if x.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros([BLOCK_N, BLOCK_C], dtype=ACC)
    for start in range(first, last, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        mask = (n < last)[:, None] & (c < width)[None, :]
        total += tl.load(x + n.to(tl.int64)[:, None] * stride + c[None, :], mask=mask, other=0.0).to(ACC)
    at = out + tl.program_id(1).to(tl.int64) * width + c
    tl.store(at, tl.sum(total, 0).to(out.dtype.element_ty), mask=c < width)
