"""Triton kernels of the selective scan. Imported only where they run: see ``triton.py``, which explains the passes.

A program has a tile [T, BLOCK_E, BLOCK_S]: the nodes of a chunk, some channels, all numbers of their states.
"""

import triton
import triton.language as tl


@triton.jit
def join(a, b, a_next, b_next):
    """Two steps as one: h -> a_next (a h + b) + b_next."""
    return a * a_next, b * a_next + b_next


@triton.jit
def of_channels(base, rows, e, nodes, E: tl.constexpr):
    """Rows [T, BLOCK_E] of a [N, E] tensor, zero beyond it."""
    mask = (rows < nodes)[:, None] & (e < E)[None, :]
    return tl.load(base + rows.to(tl.int64)[:, None] * E + e[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def of_states(base, row, e, s, E: tl.constexpr, S: tl.constexpr):
    """Row number ``row`` [BLOCK_E, BLOCK_S] of a [·, E, S] tensor."""
    mask = (e < E)[:, None] & (s < S)[None, :]
    at = base + row.to(tl.int64) * (E * S) + e[:, None] * S + s[None, :]
    return tl.load(at, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def put_states(base, row, e, s, value, E: tl.constexpr, S: tl.constexpr):
    """Write such a row."""
    mask = (e < E)[:, None] & (s < S)[None, :]
    tl.store(base + row.to(tl.int64) * (E * S) + e[:, None] * S + s[None, :], value, mask=mask)


@triton.jit
def decays(delta, rates, first, rows, e, nodes, E: tl.constexpr):
    """exp(δA) [T, BLOCK_E, BLOCK_S], zero where a graph begins and from the end of all on."""
    step = of_channels(delta, rows, e, nodes, E)
    begins = tl.load(first + rows, mask=rows < nodes, other=1) != 0
    return tl.where(begins[:, None, None], 0.0, tl.exp(step[:, :, None] * rates[None, :, :]))


@triton.jit(do_not_specialize=["nodes"])
def chunks_forward(
    u, delta, a, b, first, decay, end, nodes,
    E: tl.constexpr, S: tl.constexpr, T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Of each chunk the product of its decays, and its last state from zero."""
    chunk = tl.program_id(0)
    rows = chunk * T + tl.arange(0, T)
    e, s = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_S)
    rates = of_states(a, chunk * 0, e, s, E, S)
    taken = of_channels(delta, rows, e, nodes, E) * of_channels(u, rows, e, nodes, E)
    value = taken[:, :, None] * of_channels(b, rows, s, nodes, S)[:, None, :]
    kept, h = tl.associative_scan((decays(delta, rates, first, rows, e, nodes, E), value), 0, join)
    last = (tl.arange(0, T) == T - 1)[:, None, None]
    put_states(decay, chunk, e, s, tl.sum(tl.where(last, kept, 0.0), 0), E, S)
    put_states(end, chunk, e, s, tl.sum(tl.where(last, h, 0.0), 0), E, S)


@triton.jit(do_not_specialize=["nodes"])
def chunks_backward(
    grad, delta, a, c, first, decay, end, nodes,
    E: tl.constexpr, S: tl.constexpr, T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """The same from the other end, of G."""
    chunk = tl.program_id(0)
    rows = chunk * T + tl.arange(0, T)
    e, s = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_S)
    rates = of_states(a, chunk * 0, e, s, E, S)
    value = of_channels(grad, rows, e, nodes, E)[:, :, None] * of_channels(c, rows, s, nodes, S)[:, None, :]
    following = decays(delta, rates, first, rows + 1, e, nodes, E)
    kept, g = tl.associative_scan((following, value), 0, join, reverse=True)
    last = (tl.arange(0, T) == 0)[:, None, None]
    put_states(decay, chunk, e, s, tl.sum(tl.where(last, kept, 0.0), 0), E, S)
    put_states(end, chunk, e, s, tl.sum(tl.where(last, g, 0.0), 0), E, S)


@triton.jit(do_not_specialize=["chunks"])
def carry(decay, end, start, chunks, F: tl.constexpr, T: tl.constexpr, BLOCK_F: tl.constexpr, BACKWARDS: tl.constexpr):
    """The state with which each chunk begins, for a block of columns of [chunks, F]."""
    f = tl.program_id(0) * BLOCK_F + tl.arange(0, BLOCK_F)
    state = tl.zeros([BLOCK_F], dtype=tl.float32)
    for begin in range(0, chunks, T):
        place = begin + tl.arange(0, T)
        row = chunks - 1 - place if BACKWARDS else place
        mask = (place < chunks)[:, None] & (f < F)[None, :]
        at = row.to(tl.int64)[:, None] * F + f[None, :]
        kept, h = tl.load(decay + at, mask=mask, other=1.0), tl.load(end + at, mask=mask, other=0.0)
        joined, h = tl.associative_scan((kept, h), 0, join)
        h += joined * state[None, :]
        # Shifted by one: with the state after a chunk the next begins.
        beyond = at - F if BACKWARDS else at + F
        tl.store(start + beyond, h, mask=mask & (place + 1 < chunks)[:, None])
        if begin == 0:
            tl.store(start + at, tl.zeros_like(h), mask=mask & (place == 0)[:, None])
        state = tl.sum(tl.where((tl.arange(0, T) == T - 1)[:, None], h, 0.0), 0)


@triton.jit(do_not_specialize=["nodes"])
def forward(
    u, delta, a, b, c, first, start, y, nodes,
    E: tl.constexpr, S: tl.constexpr, T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Y of a chunk."""
    chunk = tl.program_id(0)
    rows = chunk * T + tl.arange(0, T)
    e, s = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_S)
    rates = of_states(a, chunk * 0, e, s, E, S)
    taken = of_channels(delta, rows, e, nodes, E) * of_channels(u, rows, e, nodes, E)
    value = taken[:, :, None] * of_channels(b, rows, s, nodes, S)[:, None, :]
    kept, h = tl.associative_scan((decays(delta, rates, first, rows, e, nodes, E), value), 0, join)
    h += kept * of_states(start, chunk, e, s, E, S)[None, :, :]
    out = tl.sum(h * of_channels(c, rows, s, nodes, S)[:, None, :], 2)
    mask = (rows < nodes)[:, None] & (e < E)[None, :]
    tl.store(y + rows.to(tl.int64)[:, None] * E + e[None, :], out.to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["nodes"])
def backward(
    grad, u, delta, a, b, c, first, start, after, d_u, d_delta, d_a, d_b, d_c, nodes,
    E: tl.constexpr, S: tl.constexpr, T: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Gradients of a chunk: ∂A is its share of it, ∂b and ∂c the shares of these channels."""
    chunk, block = tl.program_id(0), tl.program_id(1)
    rows = chunk * T + tl.arange(0, T)
    e, s = block * BLOCK_E + tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_S)
    rates = of_states(a, chunk * 0, e, s, E, S)
    step, read = of_channels(delta, rows, e, nodes, E), of_channels(u, rows, e, nodes, E)
    into, out = of_channels(b, rows, s, nodes, S), of_channels(c, rows, s, nodes, S)
    gy = of_channels(grad, rows, e, nodes, E)
    value = (step * read)[:, :, None] * into[:, None, :]
    kept, h = tl.associative_scan((decays(delta, rates, first, rows, e, nodes, E), value), 0, join)
    h += kept * of_states(start, chunk, e, s, E, S)[None, :, :]
    following = decays(delta, rates, first, rows + 1, e, nodes, E)
    kept, g = tl.associative_scan((following, gy[:, :, None] * out[:, None, :]), 0, join, reverse=True)
    g += kept * of_states(after, chunk, e, s, E, S)[None, :, :]
    rate = g * (h - value)  # what was there before, decayed: the gradient of δA
    put_states(d_a, chunk, e, s, tl.sum(rate * step[:, :, None], 0), E, S)
    of_step = tl.sum(rate * rates[None, :, :] + g * read[:, :, None] * into[:, None, :], 2)
    of_read = tl.sum(g * step[:, :, None] * into[:, None, :], 2)
    mask = (rows < nodes)[:, None] & (e < E)[None, :]
    at = rows.to(tl.int64)[:, None] * E + e[None, :]
    tl.store(d_u + at, of_read.to(d_u.dtype.element_ty), mask=mask)
    tl.store(d_delta + at, of_step.to(d_delta.dtype.element_ty), mask=mask)
    at = (block.to(tl.int64) * nodes + rows)[:, None] * S + s[None, :]
    mask = (rows < nodes)[:, None] & (s < S)[None, :]
    tl.store(d_b + at, tl.sum(g * (step * read)[:, :, None], 1), mask=mask)
    tl.store(d_c + at, tl.sum(h * gy[:, :, None], 1), mask=mask)
