"""Triton kernels of the deep set of eigenvalues. Imported only where they run: see ``fused.py``.

Eigenvalues of a graph are the rows of a tile [KP, W], W channels of Φ. A unit is Linear, LayerNorm, SiLU; its weights
lie behind one another: [W, W], [W], [W], [W]. First come those of the embedding, whose Linear is [W, 1], then two units
for the pool of every block, then two for the update of every block. ``gssc.molecules`` uses what is done per graph.
"""

import triton
import triton.language as tl

from gssc.ops.tile_kernels import EPS, linear, matrix, product, put_linear_gradient, put_vector, tile_at, vector


@triton.jit
def norm_act(z, at, W: tl.constexpr):
    """SiLU(LayerNorm(z)), z standardised, and 1/deviation; weight and bias of the norm lie at ``at``."""
    z = z - (tl.sum(z, 1) / W)[:, None]
    scale = (1.0 / tl.sqrt(tl.sum(z * z, 1) / W + EPS))[:, None]
    hat = z * scale
    n = hat * vector(at, W)[None, :] + vector(at + W, W)[None, :]
    return n * tl.sigmoid(n), hat, scale


@triton.jit
def norm_act_backward(d, hat, scale, at, grads, W: tl.constexpr, more=False):
    """Gradient of z; those of weight and bias go to ``grads``, with ``more`` added to what is there."""
    weight = vector(at, W)[None, :]
    n = hat * weight + vector(at + W, W)[None, :]
    gate = tl.sigmoid(n)
    d = d * gate * (1.0 + n * (1.0 - gate))
    put_vector(grads, tl.sum(d * hat, 0), W, more)
    put_vector(grads + W, tl.sum(d, 0), W, more)
    d = d * weight
    return scale * (d - (tl.sum(d, 1) / W)[:, None] - hat * (tl.sum(d * hat, 1) / W)[:, None])


@triton.jit
def unit(e, at, W: tl.constexpr, PRECISION: tl.constexpr):
    """SiLU(LayerNorm(Linear(e))), and what its gradient needs."""
    z = linear(e, at, W, W, PRECISION) + vector(at + W * W, W)[None, :]
    return norm_act(z, at + W * W + W, W)


@triton.jit
def unit_backward(d, e, hat, scale, at, grads, W: tl.constexpr, PRECISION: tl.constexpr, more=False):
    """Gradient of e; those of the weights go to ``grads``, with ``more`` added to what is there."""
    d = norm_act_backward(d, hat, scale, at + W * W + W, grads + W * W + W, W, more)
    put_linear_gradient(grads, d, e, W, W, True, PRECISION, more)
    return product(d, matrix(at, W, W), PRECISION)


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
):  # fmt: skip
    """E ← e + mean_l(pool(e_l)) ⊙ update(e), BLOCKS times; ``states`` [BLOCKS, total, KP, W] get e before each."""
    z = root[:, None] * vector(weights, W)[None, :] + vector(weights + W, W)[None, :]
    e, _, _ = norm_act(z, weights + 2 * W, W)
    size = W * W + 3 * W
    pools = weights + 4 * W
    for block in range(BLOCKS):
        if KEEP:
            tl.store(tile_at(states, block * total + slot, KP, W), e)
        pool = pools + block * (2 * size)
        update = pool + BLOCKS * (2 * size)
        pooled, _, _ = unit(e, pool, W, PRECISION)
        pooled, _, _ = unit(pooled, pool + size, W, PRECISION)
        mean = tl.sum(tl.where(valid[:, None], pooled, 0.0), 0) / count
        change, _, _ = unit(e, update, W, PRECISION)
        change, _, _ = unit(change, update + size, W, PRECISION)
        e += mean[None, :] * change
    return e


@triton.jit
def phi_backward_of(
    d, root, valid, count, weights, grads, states, slot, total,
    BLOCKS: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr, more=False,
):  # fmt: skip
    """Gradients of all weights from d, that of Φ, zero where masked; what is inside a block is computed again."""
    size = W * W + 3 * W
    for turn in range(BLOCKS):
        block = BLOCKS - 1 - turn
        e = tl.load(tile_at(states, block * total + slot, KP, W))
        pool = 4 * W + block * (2 * size)
        update = pool + BLOCKS * (2 * size)
        inner, inner_hat, inner_scale = unit(e, weights + pool, W, PRECISION)
        pooled, hat, scale = unit(inner, weights + pool + size, W, PRECISION)
        mean = tl.sum(tl.where(valid[:, None], pooled, 0.0), 0) / count
        middle, middle_hat, middle_scale = unit(e, weights + update, W, PRECISION)
        change, change_hat, change_scale = unit(middle, weights + update + size, W, PRECISION)
        d_pooled = tl.where(valid[:, None], (tl.sum(d * change, 0) / count)[None, :], 0.0)
        d_change = d * mean[None, :]
        at = weights + pool + size
        d_pooled = unit_backward(d_pooled, inner, hat, scale, at, grads + pool + size, W, PRECISION, more)
        at = weights + pool
        d += unit_backward(d_pooled, e, inner_hat, inner_scale, at, grads + pool, W, PRECISION, more)
        at, to = weights + update + size, grads + update + size
        d_change = unit_backward(d_change, middle, change_hat, change_scale, at, to, W, PRECISION, more)
        at = weights + update
        d += unit_backward(d_change, e, middle_hat, middle_scale, at, grads + update, W, PRECISION, more)
    z = root[:, None] * vector(weights, W)[None, :] + vector(weights + W, W)[None, :]
    _, hat, scale = norm_act(z, weights + 2 * W, W)
    d = norm_act_backward(d, hat, scale, weights + 2 * W, grads + 2 * W, W, more)
    put_vector(grads, tl.sum(d * root[:, None], 0), W, more)
    put_vector(grads + W, tl.sum(d, 0), W, more)


@triton.jit
def rows_at(base, graph, K: tl.constexpr, KP: tl.constexpr, W: tl.constexpr):
    """Addresses of the rows of a graph in [G, K, W], of which there are only K."""
    return base + graph * (K * W) + tl.arange(0, KP)[:, None] * W + tl.arange(0, W)[None, :]


@triton.jit
def forward_graph(
    weights, eigvals, eigmask, states, out,
    BLOCKS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, W: tl.constexpr, PRECISION: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    """Φ of one graph, zero where masked."""
    slot = tl.program_id(0)
    graph = slot.to(tl.int64)
    root, valid, count = spectrum_of(eigvals, eigmask, graph, K, KP)
    e = phi_of(root, valid, count, weights, states, graph, tl.num_programs(0), BLOCKS, KP, W, PRECISION, KEEP)
    inside = (tl.arange(0, KP) < K)[:, None]
    tl.store(rows_at(out, graph, K, KP, W), tl.where(valid[:, None], e, 0.0), mask=inside)


@triton.jit(do_not_specialize=["graphs"])
def backward_graphs(
    weights, eigvals, eigmask, states, grad,
    partial,  # [programs, SIZE]
    graphs,
    SIZE: tl.constexpr, BLOCKS: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, W: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum of the gradients of all weights over every num_programs-th graph, in their order."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    grads = partial + program.to(tl.int64) * SIZE
    for turn in range(tl.cdiv(graphs - program, programs)):
        graph = (program + turn * programs).to(tl.int64)
        root, valid, count = spectrum_of(eigvals, eigmask, graph, K, KP)
        d = tl.load(rows_at(grad, graph, K, KP, W), mask=valid[:, None], other=0.0)
        phi_backward_of(
            d, root, valid, count, weights, grads, states, graph, graphs, BLOCKS, KP, W, PRECISION, turn > 0
        )
        # The next graph adds to what this one has stored, perhaps by other threads.
        tl.debug_barrier()
