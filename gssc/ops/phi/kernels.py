"""Triton kernels of the deep set of eigenvalues. Imported only where they run: see ``triton.py``.

Eigenvalues of a graph are the rows of a tile [KP, W]. A unit is Linear, LayerNorm, SiLU; its weights lie behind one
another: [N, N], [N], [N], [N], for the N channels of Φ. W is the power of two that holds them; columns beyond N are
zero. First come the weights of the embedding, whose Linear is [N, 1], then two units for the pool of every block, then
two for the update of every block. ``gssc.molecules`` uses what is done per graph, with N = W.
"""

import triton
import triton.language as tl

from gssc.ops.tile_kernels import EPS, matrix, product, put_matrix, put_vector, tile_at, vector


@triton.jit
def real_columns(z, W: tl.constexpr, N: tl.constexpr):
    """Zero in columns that are not there."""
    if N != W:
        z = tl.where((tl.arange(0, W) < N)[None, :], z, 0.0)
    return z


@triton.jit
def norm_act(z, at, W: tl.constexpr, N: tl.constexpr):
    """SiLU(LayerNorm(z)), z standardised, and 1/deviation; weight and bias of the norm lie at ``at``."""
    z = real_columns(z - (tl.sum(z, 1) / N)[:, None], W, N)
    scale = (1.0 / tl.sqrt(tl.sum(z * z, 1) / N + EPS))[:, None]
    hat = z * scale
    n = hat * vector(at, W, N)[None, :] + vector(at + N, W, N)[None, :]
    return n * tl.sigmoid(n), hat, scale


@triton.jit
def norm_act_backward(d, hat, scale, at, grads, W: tl.constexpr, N: tl.constexpr, more=False):
    """Gradient of z; those of weight and bias go to ``grads``, with ``more`` added to what is there."""
    weight = vector(at, W, N)[None, :]
    n = hat * weight + vector(at + N, W, N)[None, :]
    gate = tl.sigmoid(n)
    d = d * gate * (1.0 + n * (1.0 - gate))
    put_vector(grads, tl.sum(d * hat, 0), W, more, N)
    put_vector(grads + N, tl.sum(d, 0), W, more, N)
    d = d * weight
    d = scale * (d - (tl.sum(d, 1) / N)[:, None] - hat * (tl.sum(d * hat, 1) / N)[:, None])
    return real_columns(d, W, N)


@triton.jit
def unit(e, at, W: tl.constexpr, PRECISION: tl.constexpr, N: tl.constexpr):
    """SiLU(LayerNorm(Linear(e))), and what its gradient needs."""
    z = product(e, tl.trans(matrix(at, W, W, N)), PRECISION) + vector(at + N * N, W, N)[None, :]
    return norm_act(z, at + N * N + N, W, N)


@triton.jit
def unit_backward(d, e, hat, scale, at, grads, W: tl.constexpr, PRECISION: tl.constexpr, N: tl.constexpr, more=False):
    """Gradient of e; those of the weights go to ``grads``, with ``more`` added to what is there."""
    d = norm_act_backward(d, hat, scale, at + N * N + N, grads + N * N + N, W, N, more)
    put_matrix(grads, product(tl.trans(d), e, PRECISION), W, W, more, N)
    put_vector(grads + N * N, tl.sum(d, 0), W, more, N)
    return product(d, matrix(at, W, W, N), PRECISION)


@triton.jit
def spectrum_of(eigvals, eigmask, graph, K: tl.constexpr, KP: tl.constexpr):
    """sign(λ)√|λ| of a graph [KP], which of them are valid, and how many, at least one."""
    k = tl.arange(0, KP)
    valid = tl.load(eigmask + graph * K + k, mask=k < K, other=0) != 0
    value = tl.load(eigvals + graph * K + k, mask=valid, other=0.0)
    root = tl.sqrt(tl.abs(value))
    count = tl.maximum(tl.sum(valid.to(tl.int32), 0), 1).to(tl.float32)
    return tl.where(value < 0.0, -root, root), valid, count


@triton.jit
def phi_of(
    root, valid, count, weights, states, slot, total,
    BLOCKS: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr, KEEP: tl.constexpr = True,
    CHANNELS: tl.constexpr = 0,
):  # fmt: skip
    """E ← e + mean_l(pool(e_l)) ⊙ update(e), BLOCKS times; ``states`` [BLOCKS, total, KP, W] get e before each."""
    N: tl.constexpr = CHANNELS if CHANNELS > 0 else W
    z = root[:, None] * vector(weights, W, N)[None, :] + vector(weights + N, W, N)[None, :]
    e, _, _ = norm_act(z, weights + 2 * N, W, N)
    size = N * N + 3 * N
    pools = weights + 4 * N
    for block in range(BLOCKS):
        if KEEP:
            tl.store(tile_at(states, block * total + slot, KP, W), e)
        pool = pools + block * (2 * size)
        update = pool + BLOCKS * (2 * size)
        pooled, _, _ = unit(e, pool, W, PRECISION, N)
        pooled, _, _ = unit(pooled, pool + size, W, PRECISION, N)
        mean = tl.sum(tl.where(valid[:, None], pooled, 0.0), 0) / count
        change, _, _ = unit(e, update, W, PRECISION, N)
        change, _, _ = unit(change, update + size, W, PRECISION, N)
        e += mean[None, :] * change
    return e


@triton.jit
def phi_backward_of(
    d, root, valid, count, weights, grads, states, slot, total,
    BLOCKS: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr, more=False,
    CHANNELS: tl.constexpr = 0,
):  # fmt: skip
    """Gradients of all weights from d, that of Φ, zero where masked; what is inside a block is computed again."""
    N: tl.constexpr = CHANNELS if CHANNELS > 0 else W
    size = N * N + 3 * N
    for turn in range(BLOCKS):
        block = BLOCKS - 1 - turn
        e = tl.load(tile_at(states, block * total + slot, KP, W))
        pool = 4 * N + block * (2 * size)
        update = pool + BLOCKS * (2 * size)
        inner, inner_hat, inner_scale = unit(e, weights + pool, W, PRECISION, N)
        pooled, hat, scale = unit(inner, weights + pool + size, W, PRECISION, N)
        mean = tl.sum(tl.where(valid[:, None], pooled, 0.0), 0) / count
        middle, middle_hat, middle_scale = unit(e, weights + update, W, PRECISION, N)
        change, change_hat, change_scale = unit(middle, weights + update + size, W, PRECISION, N)
        d_pooled = tl.where(valid[:, None], (tl.sum(d * change, 0) / count)[None, :], 0.0)
        d_change = d * mean[None, :]
        at = weights + pool + size
        d_pooled = unit_backward(d_pooled, inner, hat, scale, at, grads + pool + size, W, PRECISION, N, more)
        at = weights + pool
        d += unit_backward(d_pooled, e, inner_hat, inner_scale, at, grads + pool, W, PRECISION, N, more)
        at, to = weights + update + size, grads + update + size
        d_change = unit_backward(d_change, middle, change_hat, change_scale, at, to, W, PRECISION, N, more)
        at = weights + update
        d += unit_backward(d_change, e, middle_hat, middle_scale, at, grads + update, W, PRECISION, N, more)
    z = root[:, None] * vector(weights, W, N)[None, :] + vector(weights + N, W, N)[None, :]
    _, hat, scale = norm_act(z, weights + 2 * N, W, N)
    d = norm_act_backward(d, hat, scale, weights + 2 * N, grads + 2 * N, W, N, more)
    put_vector(grads, tl.sum(d * root[:, None], 0), W, more, N)
    put_vector(grads + N, tl.sum(d, 0), W, more, N)


@triton.jit
def rows_at(base, graph, K: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, N: tl.constexpr):
    """Addresses of the rows of a graph in [G, K, N], of which there are only K, and which of them are there."""
    k, c = tl.arange(0, KP)[:, None], tl.arange(0, W)[None, :]
    return base + graph * (K * N) + k * N + c, (k < K) & (c < N)


@triton.jit
def forward_graph(
    weights, eigvals, eigmask, states, out,
    BLOCKS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, N: tl.constexpr,
    PRECISION: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Φ of one graph, zero where masked."""
    slot = tl.program_id(0)
    graph = slot.to(tl.int64)
    root, valid, count = spectrum_of(eigvals, eigmask, graph, K, KP)
    e = phi_of(root, valid, count, weights, states, graph, tl.num_programs(0), BLOCKS, KP, W, PRECISION, KEEP, N)
    at, inside = rows_at(out, graph, K, KP, W, N)
    tl.store(at, tl.where(valid[:, None], e, 0.0), mask=inside)


@triton.jit(do_not_specialize=["graphs"])
def backward_graphs(
    weights, eigvals, eigmask, states, grad,
    partial,  # [programs, SIZE]
    graphs,
    SIZE: tl.constexpr, BLOCKS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, N: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum of the gradients of all weights over every num_programs-th graph, in their order."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    grads = partial + program.to(tl.int64) * SIZE
    for turn in range(tl.cdiv(graphs - program, programs)):
        graph = (program + turn * programs).to(tl.int64)
        root, valid, count = spectrum_of(eigvals, eigmask, graph, K, KP)
        at, inside = rows_at(grad, graph, K, KP, W, N)
        d = tl.load(at, mask=inside & valid[:, None], other=0.0)
        phi_backward_of(
            d, root, valid, count, weights, grads, states, graph, graphs, BLOCKS, KP, W, PRECISION, turn > 0, N
        )
        # The next graph adds to what this one has stored, perhaps by other threads.
        tl.debug_barrier()
