"""Triton kernels of products with states of graphs, and of sums over graphs. Imported only where they run.

Tiles of nodes are those of ``conv/kernels.py``. With PAIRS the vectors stand for the row-wise outer product of
themselves, K² columns P_vj P_vk, made in registers from P alone.
"""

import triton
import triton.language as tl

from gssc.ops.conv.kernels import load_gains, load_rows, locate, store_rows, store_state


@triton.jit
def load_vectors(base, rows, valid, s, K: tl.constexpr, S: tl.constexpr, PAIRS: tl.constexpr):
    """Columns s of P or, for pairs, of P⊗P: [rows, columns] as float32."""
    mask = valid[:, None] & (s < S)[None, :]
    at = base + rows[:, None] * K
    if PAIRS:
        left = tl.load(at + (s // K)[None, :], mask=mask, other=0.0).to(tl.float32)
        columns = left * tl.load(at + (s % K)[None, :], mask=mask, other=0.0).to(tl.float32)
    else:
        columns = tl.load(at + s[None, :], mask=mask, other=0.0).to(tl.float32)
    return columns


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def to_state(
    vectors, x, ptr, partial, state, nodes, graphs, steps, chunk,
    K: tl.constexpr, S: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_C: tl.constexpr, PAIRS: tl.constexpr, SMALL_GRAPHS: tl.constexpr, LARGE_GRAPHS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A block of rows of U = PᵀX for the nodes of one tile."""
    tile = tl.program_id(0)
    graph, start, length, size = locate(tile, ptr, nodes, graphs, steps, chunk)
    s = tl.program_id(1) * BLOCK_S + tl.arange(0, BLOCK_S)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    total = tl.zeros([BLOCK_S, BLOCK_C], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)
        valid = rows < length
        p = load_vectors(vectors + start * K, rows, valid, s, K, S, PAIRS)
        features = load_rows(x + start * C, rows, valid, c, C, BLOCK_C)
        total = tl.dot(tl.trans(p), features, total, input_precision=PRECISION)
    if SMALL_GRAPHS:
        if size <= chunk:
            store_state(state, graph, s, c, total, S, C)
    if LARGE_GRAPHS:
        if (length > 0) & (size > chunk):
            store_state(partial, tile, s, c, total, S, C)


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def from_state(
    vectors, state, ptr, out, nodes, graphs, steps, chunk,
    K: tl.constexpr, S: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_C: tl.constexpr, PAIRS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Y = PS for the nodes of one tile."""
    graph, start, length, _ = locate(tl.program_id(0), ptr, nodes, graphs, steps, chunk)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    for first in range(0, length, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)
        valid = rows < length
        total = tl.zeros([BLOCK_N, BLOCK_C], dtype=tl.float32)
        for at in range(0, S, BLOCK_S):
            s = at + tl.arange(0, BLOCK_S)
            p = load_vectors(vectors + start * K, rows, valid, s, K, S, PAIRS)
            part = load_gains(state, graph, s, c, S, C, False)
            total = tl.dot(p, part, total, input_precision=PRECISION)
        store_rows(out + start * C, rows, valid, c, total, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def sum_tiles(
    x, ptr, partial, out, nodes, graphs, steps, chunk,
    C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
    SMALL_GRAPHS: tl.constexpr, LARGE_GRAPHS: tl.constexpr,
):  # fmt: skip
    """Σ x_v over the nodes of one tile."""
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
