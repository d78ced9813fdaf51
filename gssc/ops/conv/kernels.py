"""Triton kernels of the convolution. Imported only where they run: see ``triton.py``, which explains the passes.

Work is cut into tiles of at most ``chunk`` nodes of one graph. Graph g owns the tile numbers from
ptr[g] // chunk + g on: enough of them, in ascending order, N // chunk + G in all, and found from ``ptr`` alone, so that
the host never has to look at the sizes. A graph that fits into one tile is finished by the program that
summed it; larger graphs leave one partial sum per tile, which ``reduce`` adds in a fixed order.

X_o and X_s, and their gradients, are tensors of their own (PARTS = 1), or columns of one [N, PARTS · C]: seen as one
[PARTS · N, C], row PARTS · u of its pointer is what node u has there. What belongs to a term that is not there is None.
"""

import triton
import triton.language as tl

from gssc.ops.edges.kernels import inside


@triton.jit
def locate(tile, ptr, nodes, graphs, steps, chunk):
    """Graph, first node and number of nodes of a tile, and the number of nodes of its graph."""
    low = tile * 0
    high = low + graphs
    for _ in range(steps):
        middle = (low + high) // 2
        right = tl.load(ptr + middle) // chunk + middle <= tile
        low = tl.where(right, middle, low)
        high = tl.where(right, high, middle)
    # Clamped: a wrong ptr must not read or write outside the tensors.
    begin = tl.maximum(tl.load(ptr + low), 0)
    end = tl.minimum(tl.load(ptr + low + 1), nodes)
    index = tile - (begin // chunk + low)
    start = begin + index * chunk
    length = tl.maximum(tl.minimum(end - start, chunk), 0)
    # A small graph may own a second number, which has nothing to do: it must not pass for the first.
    size = tl.where(index == 0, end - begin, tl.maximum(end - begin, chunk + 1))
    return low.to(tl.int64), start, length.to(tl.int32), size


@triton.jit
def load_rows(base, rows, valid, columns, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a [·, WIDTH] tensor as float32, zero outside."""
    at = base + rows[:, None] * WIDTH + columns[None, :]
    return tl.load(at, mask=inside(valid, columns, WIDTH, BLOCK), other=0.0).to(tl.float32)


@triton.jit
def store_rows(base, rows, valid, columns, value, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows of a [·, WIDTH] tensor, in its dtype."""
    at = base + rows[:, None] * WIDTH + columns[None, :]
    tl.store(at, value.to(base.dtype.element_ty), mask=inside(valid, columns, WIDTH, BLOCK))


@triton.jit
def load_gains(gains, graph, k, c, K: tl.constexpr, C: tl.constexpr, SHARED: tl.constexpr):
    """Gains of one graph, [K, C] or, shared by all channels, [K, 1]."""
    if SHARED:
        value = tl.load(gains + graph * K + k, mask=k < K, other=0.0).to(tl.float32)[:, None]
    else:
        mask = (k < K)[:, None] & (c < C)[None, :]
        value = tl.load(gains + graph * K * C + k[:, None] * C + c[None, :], mask=mask, other=0.0).to(tl.float32)
    return value


@triton.jit
def store_state(base, index, k, c, value, K: tl.constexpr, C: tl.constexpr):
    """One state [K, C] of many."""
    mask = (k < K)[:, None] & (c < C)[None, :]
    tl.store(base + index.to(tl.int64) * K * C + k[:, None] * C + c[None, :], value, mask=mask)


@triton.jit
def self_scale(p, own, SHARED: tl.constexpr, PRECISION: tl.constexpr):
    """(P⊙P) A_s for a block of nodes: [rows, C], or [rows, 1] where gains are shared."""
    if SHARED:
        scale = tl.sum(p * p * tl.trans(own), 1)[:, None]
    else:
        scale = tl.dot(p * p, own, input_precision=PRECISION)
    return scale


@triton.jit
def apply(
    features, vectors, bias, out, self_out, start, length, c, k, mix, own,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
    SELF_SHARED: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """P · mix and ((P⊙P) own) ⊙ features for the nodes of one tile.

    Forward the features are X_s, and H is the sum of both and the bias; backward they are G, and ∂X_o and ∂X_s are one
    of both each.
    """
    for first in range(0, length, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)
        valid = rows < length
        p = load_rows(vectors + start * K, rows, valid, k, K, BLOCK_K)
        if BACKWARD:
            if mix is not None:
                d = tl.dot(p, mix, input_precision=PRECISION)
                store_rows(out + start * (C * PARTS), rows * PARTS, valid, c, d, C, BLOCK_C)
            if own is not None:
                g = load_rows(features + start * C, rows, valid, c, C, BLOCK_C)
                d = self_scale(p, own, SELF_SHARED, PRECISION) * g
                store_rows(self_out + start * (C * PARTS), rows * PARTS, valid, c, d, C, BLOCK_C)
        else:
            if own is not None:
                x = load_rows(features + start * (C * PARTS), rows * PARTS, valid, c, C, BLOCK_C)
                h = self_scale(p, own, SELF_SHARED, PRECISION) * x
                if mix is not None:
                    h = tl.dot(p, mix, h, input_precision=PRECISION)
            else:
                h = tl.dot(p, mix, input_precision=PRECISION)
            if bias is not None:
                h += tl.load(bias + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
            store_rows(out + start * C, rows, valid, c, h, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def apply_tiles(
    features, vectors, gains, self_gains, bias, ptr, state, out, self_out, nodes, graphs, steps, chunk,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
    SHARED: tl.constexpr, SELF_SHARED: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr,
    EVERY: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    """The second pass for a tile of a graph with several, or of EVERY graph; ``state`` is U, or V backward."""
    # From the last tile to the first: what the sums read last is still in the cache.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    graph, start, length, size = locate(tile, ptr, nodes, graphs, steps, chunk)
    if (length > 0) & ((size > chunk) | EVERY):
        c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
        k = tl.arange(0, BLOCK_K)
        mix = None
        if gains is not None:
            mix = load_gains(gains, graph, k, c, K, C, SHARED) * load_gains(state, graph, k, c, K, C, False)
        own = None if self_gains is None else load_gains(self_gains, graph, k, c, K, C, SELF_SHARED)
        apply(
            features, vectors, bias, out, self_out, start, length, c, k, mix, own,
            K, C, BLOCK_N, BLOCK_K, BLOCK_C, SELF_SHARED, PARTS, PRECISION, BACKWARD,
        )  # fmt: skip


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def forward_tiles(
    x_o, x_s, vectors, gains, self_gains, bias, ptr, partial, state, out, nodes, graphs, steps, chunk,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
    SHARED: tl.constexpr, SELF_SHARED: tl.constexpr, PARTS: tl.constexpr,
    SMALL_GRAPHS: tl.constexpr, LARGE_GRAPHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """U = PᵀX_o of a tile; where the graph has no other tile, H too."""
    tile = tl.program_id(0)
    graph, start, length, size = locate(tile, ptr, nodes, graphs, steps, chunk)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_K, BLOCK_C], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)
        valid = rows < length
        p = load_rows(vectors + start * K, rows, valid, k, K, BLOCK_K)
        x = load_rows(x_o + start * (C * PARTS), rows * PARTS, valid, c, C, BLOCK_C)
        total = tl.dot(tl.trans(p), x, total, input_precision=PRECISION)
    if SMALL_GRAPHS:
        if size <= chunk:
            store_state(state, graph, k, c, total, K, C)
            mix = load_gains(gains, graph, k, c, K, C, SHARED) * total
            own = None if self_gains is None else load_gains(self_gains, graph, k, c, K, C, SELF_SHARED)
            apply(
                x_s, vectors, bias, out, None, start, length, c, k, mix, own,
                K, C, BLOCK_N, BLOCK_K, BLOCK_C, SELF_SHARED, PARTS, PRECISION, False,
            )  # fmt: skip
    if LARGE_GRAPHS:
        if (length > 0) & (size > chunk):
            store_state(partial, tile, k, c, total, K, C)


@triton.jit
def store_gain_gradient(
    base, index, block, blocks, k, c, value, K: tl.constexpr, C: tl.constexpr, SHARED: tl.constexpr
):  # fmt: skip
    """∂A, [·, K, C]; where gains are shared, its sum over the channels of this block, [·, K, blocks]."""
    if SHARED:
        tl.store(base + (index.to(tl.int64) * K + k) * blocks + block, value, mask=k < K)
    else:
        store_state(base, index, k, c, value, K, C)


@triton.jit(do_not_specialize=["nodes", "graphs", "steps", "chunk"])
def backward_tiles(
    grad, x_s, vectors, gains, self_gains, ptr, state, partial, self_partial, d_o, d_s, d_gains, d_self_gains,
    nodes, graphs, steps, chunk,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_C: tl.constexpr,
    SHARED: tl.constexpr, SELF_SHARED: tl.constexpr, PARTS: tl.constexpr,
    SMALL_GRAPHS: tl.constexpr, LARGE_GRAPHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """V = PᵀG and ∂A_s = (P⊙P)ᵀ(G⊙X_s) of a tile; where the graph has no other tile, all gradients."""
    tile = tl.program_id(0)
    graph, start, length, size = locate(tile, ptr, nodes, graphs, steps, chunk)
    block = tl.program_id(1)
    blocks = tl.num_programs(1)
    c = block * BLOCK_C + tl.arange(0, BLOCK_C)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_K, BLOCK_C], dtype=tl.float32)
    if SELF_SHARED:
        self_total = tl.zeros([BLOCK_K], dtype=tl.float32)
    else:
        self_total = tl.zeros([BLOCK_K, BLOCK_C], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows = first + tl.arange(0, BLOCK_N)
        valid = rows < length
        p = load_rows(vectors + start * K, rows, valid, k, K, BLOCK_K)
        g = load_rows(grad + start * C, rows, valid, c, C, BLOCK_C)
        if gains is not None:
            total = tl.dot(tl.trans(p), g, total, input_precision=PRECISION)
        if self_gains is not None:
            x = load_rows(x_s + start * (C * PARTS), rows * PARTS, valid, c, C, BLOCK_C)
            if SELF_SHARED:
                self_total += tl.sum(p * p * tl.sum(g * x, 1)[:, None], 0)
            else:
                self_total = tl.dot(tl.trans(p * p), g * x, self_total, input_precision=PRECISION)
    if SMALL_GRAPHS:
        if size <= chunk:
            if gains is not None:
                change = load_gains(state, graph, k, c, K, C, False) * total
                if SHARED:
                    change = tl.sum(change, 1)
                store_gain_gradient(d_gains, graph, block, blocks, k, c, change, K, C, SHARED)
            if self_gains is not None:
                store_gain_gradient(d_self_gains, graph, block, blocks, k, c, self_total, K, C, SELF_SHARED)
            mix = None if gains is None else load_gains(gains, graph, k, c, K, C, SHARED) * total
            own = None if self_gains is None else load_gains(self_gains, graph, k, c, K, C, SELF_SHARED)
            apply(
                grad, vectors, None, d_o, d_s, start, length, c, k, mix, own,
                K, C, BLOCK_N, BLOCK_K, BLOCK_C, SELF_SHARED, PARTS, PRECISION, True,
            )  # fmt: skip
    if LARGE_GRAPHS:
        if (length > 0) & (size > chunk):
            if gains is not None:
                store_state(partial, tile, k, c, total, K, C)
            if self_gains is not None:
                store_gain_gradient(self_partial, tile, block, blocks, k, c, self_total, K, C, SELF_SHARED)


@triton.jit(do_not_specialize=["chunk"])
def reduce(
    partial, ptr, state, total, product, chunk,
    K: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Sum over the tiles of one graph, [tiles, K, C] -> [K, C], and into ``product`` the gradient of gains, U ⊙ sum."""
    graph = tl.program_id(0)
    begin = tl.load(ptr + graph)
    length = tl.load(ptr + graph + 1) - begin
    if length > chunk:
        block = tl.program_id(2)
        c = block * BLOCK_C + tl.arange(0, BLOCK_C)
        tiles = ((length + chunk - 1) // chunk).to(tl.int32)
        base = partial + (begin // chunk + graph) * (K * C)
        for k in range(tl.program_id(1), K, tl.num_programs(1)):
            acc = tl.zeros([ROWS, BLOCK_C], dtype=tl.float32)
            for first in range(0, tiles, ROWS):
                rows = first + tl.arange(0, ROWS)
                mask = (rows < tiles)[:, None] & (c < C)[None, :]
                acc += tl.load(base + rows[:, None] * (K * C) + k * C + c[None, :], mask=mask, other=0.0)
            sums = tl.sum(acc, 0)
            where = graph.to(tl.int64) * (K * C) + k * C + c
            tl.store(total + where, sums, mask=c < C)
            if product is not None:
                change = tl.load(state + where, mask=c < C, other=0.0) * sums
                if SHARED:
                    tl.store(product + (graph * K + k) * tl.num_programs(2) + block, tl.sum(change, 0))
                else:
                    tl.store(product + where, change, mask=c < C)
