"""What kernels over edges share. Rows are gathered by node or edge number; a program owns a block of channels."""

import triton
import triton.language as tl


@triton.jit
def row(base, number, c, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """One row of a [·, C] tensor as float32, zero beyond C."""
    where = base + number * tl.full([], C, tl.int64) + c
    mask = None if C % BLOCK_C == 0 else c < C
    return tl.load(where, mask=mask, other=None if C % BLOCK_C == 0 else 0.0).to(tl.float32)


@triton.jit
def put_row(base, number, c, value, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """Write one row, in the dtype of the tensor."""
    where = base + number * tl.full([], C, tl.int64) + c
    tl.store(where, value.to(base.dtype.element_ty), mask=None if C % BLOCK_C == 0 else c < C)


@triton.jit
def inside(valid, c, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """Mask of a block of rows."""
    mask = valid[:, None]
    if C % BLOCK_C != 0:
        mask = mask & (c < C)[None, :]
    return mask


@triton.jit
def gather(base, rows, valid, c, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """Rows of a [·, C] tensor as float32, zero where not valid."""
    where = base + rows.to(tl.int64)[:, None] * C + c[None, :]
    return tl.load(where, mask=inside(valid, c, C, BLOCK_C), other=0.0).to(tl.float32)


@triton.jit
def scatter(base, rows, valid, c, value, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """Write rows, in the dtype of the tensor."""
    where = base + rows.to(tl.int64)[:, None] * C + c[None, :]
    tl.store(where, value.to(base.dtype.element_ty), mask=inside(valid, c, C, BLOCK_C))


@triton.jit
def nothing(BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr):
    """Where a sum over edges begins. Its rows are added up once, at its end: that takes shuffles."""
    return tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)


@triton.jit
def channels(BLOCK_C: tl.constexpr):
    """Channels of this program."""
    return tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)


@triton.jit
def edge_block(edges, BLOCK_E: tl.constexpr):
    """Edges of this program, where a program has a block of them in the order they came."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_E + tl.arange(0, BLOCK_E)
    return rows, rows < edges
