"""Triton kernels of features scaled by degree. Imported only where they run: see ``fused.py``."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.common import columns, load, put, store, vector


@triton.jit
def log_degree(degree, rows, valid, ACC: tl.constexpr):
    """log(1 + d) of a block of rows."""
    return tl.log(1.0 + tl.load(degree + rows, mask=valid, other=0.0).to(ACC))


@triton.jit(do_not_specialize=["nodes"])
def forward_rows(
    x, a, b, degree, out, nodes, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr
):  # fmt: skip
    """Y for a block."""
    rows, c = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid = rows < nodes
    factor = (
        vector(a, c, C, ACC)[None, :] + vector(b, c, C, ACC)[None, :] * log_degree(degree, rows, valid, ACC)[:, None]
    )
    store(out, rows, valid, c, load(x, rows, valid, c, C, ACC) * factor, C)


@triton.jit(do_not_specialize=["nodes"])
def backward_rows(
    grad, x, a, b, degree, dx, sums, nodes,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """∂x for a block, and its part of ∂a and ∂b into ``sums`` [blocks, 2, C]."""
    rows, c = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N), columns(BLOCK_C)
    valid = rows < nodes
    logs = log_degree(degree, rows, valid, ACC)[:, None]
    g = load(grad, rows, valid, c, C, ACC)
    along = g * load(x, rows, valid, c, C, ACC)
    own = sums + tl.program_id(0).to(tl.int64) * (2 * C)
    put(own, c, tl.sum(along, 0), C, True)
    put(own + C, c, tl.sum(along * logs, 0), C, True)
    store(dx, rows, valid, c, g * (vector(a, c, C, ACC)[None, :] + vector(b, c, C, ACC)[None, :] * logs), C)
