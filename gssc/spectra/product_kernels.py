"""Triton kernels of ``fused_product.py``, which explains them. Imported only where they run.

Every matrix row begins with its diagonal entry; ``coefficients`` holds α, β and γ in the dtype of the block, since
Triton would pass Python numbers as float32. Rows of blocks are ``groups * ALIGN`` numbers long: a length known to be a
multiple of ALIGN is read in whole vectors, and one compiled kernel serves many lengths.
"""

import triton
import triton.language as tl


@triton.jit
def take(x, node, column, stride, EVEN: tl.constexpr):
    """Rows ``node`` [R] of x: [R, BLOCK]."""
    place = x + node.to(tl.int64)[:, None] * stride + column[None, :]
    # Loads without a mask are free to be under way together.
    if EVEN:
        rows = tl.load(place)
    else:
        rows = tl.load(place, mask=(column < stride)[None, :], other=0.0)
    return rows


@triton.jit
def entry(col, weight, at, end):
    """Column and value of entry ``at`` [R]; zero, at the last entry of the row, where it lies beyond the row's end."""
    here = tl.minimum(at, end - 1)
    return tl.load(col + here), tl.where(at < end, tl.load(weight + here), 0.0)


@triton.jit
def finish(total, row, valid, begin, weight, x, z, coefficients, column, stride, ADDS: tl.constexpr):
    """z[row] = α (total + diagonal · x[row]) + β x[row] + γ z[row]; without the last term where ADDS is not set."""
    alpha = tl.load(coefficients)
    beta = tl.load(coefficients + 1)
    mask = valid[:, None] & (column < stride)[None, :]
    place = row.to(tl.int64)[:, None] * stride + column[None, :]
    of_row = tl.load(x + place, mask=mask, other=0.0)
    diagonal = tl.load(weight + begin)
    out = alpha * total + (alpha * diagonal + beta)[:, None] * of_row
    if ADDS:
        out += tl.load(coefficients + 2) * tl.load(z + place, mask=mask, other=0.0)
    tl.store(z + place, out, mask=mask)


@triton.jit
def short_rows(
    rows, count, crow, col, weight, x, z, coefficients, groups,
    ALIGN: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """A block of rows of similar length, four entries of each at a time so that enough loads are under way."""
    index = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = index < count
    # Beyond the last row: the first one again, and nothing is stored.
    row = tl.load(rows + tl.where(valid, index, 0))
    begin = tl.load(crow + row)
    end = tl.load(crow + row + 1)
    stride = groups * ALIGN
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    EVEN: tl.constexpr = ALIGN % BLOCK == 0
    total = tl.zeros([ROWS, BLOCK], dtype=x.dtype.element_ty)
    longest = tl.max(end - begin, 0)
    for slot in range(1, longest, 4):
        at = begin + slot
        node0, value0 = entry(col, weight, at, end)
        node1, value1 = entry(col, weight, at + 1, end)
        node2, value2 = entry(col, weight, at + 2, end)
        node3, value3 = entry(col, weight, at + 3, end)
        taken0 = take(x, node0, column, stride, EVEN)
        taken1 = take(x, node1, column, stride, EVEN)
        taken2 = take(x, node2, column, stride, EVEN)
        taken3 = take(x, node3, column, stride, EVEN)
        total += value0[:, None] * taken0
        total += value1[:, None] * taken1
        total += value2[:, None] * taken2
        total += value3[:, None] * taken3
    finish(total, row, valid, begin, weight, x, z, coefficients, column, stride, ADDS)


@triton.jit
def long_parts(
    begins, ends, col, weight, x, partial, groups, ALIGN: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr
):
    """The sum over one piece of a long row, into its own row of ``partial``."""
    piece = tl.program_id(0)
    begin = tl.load(begins + piece)
    end = tl.load(ends + piece)
    stride = groups * ALIGN
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    EVEN: tl.constexpr = ALIGN % BLOCK == 0
    total = tl.zeros([SLOTS, BLOCK], dtype=x.dtype.element_ty)
    for start in range(begin, end, SLOTS):
        node, value = entry(col, weight, start + tl.arange(0, SLOTS), end)
        total += value[:, None] * take(x, node, column, stride, EVEN)
    tl.store(partial + piece.to(tl.int64) * stride + column, tl.sum(total, 0), mask=column < stride)


@triton.jit
def long_rows(
    rows, first, crow, weight, x, z, partial, coefficients, groups,
    ALIGN: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Add the pieces of one long row, in a fixed order."""
    index = tl.program_id(0) + tl.arange(0, 1)
    begin = tl.load(first + tl.program_id(0))
    end = tl.load(first + tl.program_id(0) + 1)
    stride = groups * ALIGN
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([SLOTS, BLOCK], dtype=x.dtype.element_ty)
    for start in range(begin, end, SLOTS):
        piece = start + tl.arange(0, SLOTS)
        place = partial + piece.to(tl.int64)[:, None] * stride + column[None, :]
        total += tl.load(place, mask=(piece < end)[:, None] & (column < stride)[None, :], other=0.0)
    row = tl.load(rows + index)
    valid = index >= 0
    whole = tl.sum(total, 0)[None, :]
    finish(whole, row, valid, tl.load(crow + row), weight, x, z, coefficients, column, stride, ADDS)
