"""Triton kernel of sums over graphs. Imported only where it runs: see ``fused.py``."""

import triton
import triton.language as tl

from gssc.ops.conv.kernels import load_rows, locate


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def sum_tiles(
    x, ptr, partial, out, nodes, graphs, steps, chunk,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
    SMALL_GRAPHS: tl.constexpr, LARGE_GRAPHS: tl.constexpr,
):  # fmt: skip
    """Σ x_v over a tile of nodes (tiles are those of ``gssc_conv/kernels.py``)."""
    tile = tl.program_id(0)
    graph, start, length, size = locate(tile, ptr, nodes, graphs, steps, chunk)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_N, BLOCK_C], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)
        total += load_rows(x + start * C, rows, rows < length, c, C, BLOCK_C)
    sums = tl.sum(total, 0)
    if SMALL_GRAPHS:
        if size <= chunk:
            tl.store(out + graph * C + c, sums.to(out.dtype.element_ty), mask=c < C)
    if LARGE_GRAPHS:
        if (length > 0) & (size > chunk):
            tl.store(partial + tile.to(tl.int64) * C + c, sums, mask=c < C)
