"""φ of the eigenvalues of every graph (`DeepSetPhi`) and the gains of all layers, forward and backward.

Eigenvalues of a graph are the rows of a tile [KP, W], W channels of φ. A unit is Linear, LayerNorm, SiLU; its weights
lie behind one another: [W, W], [W], [W], [W].
"""

import triton
import triton.language as tl

from gssc.ops.molecule_layer.kernels.common import (
    EPS,
    SLOT,
    linear,
    matrix,
    product,
    put_linear_gradient,
    put_matrix,
    put_vector,
    tile_at,
    vector,
)


@triton.jit
def norm_act(z, at, W: tl.constexpr):
    """SiLU(LayerNorm(z)), z standardised, and 1/deviation; weight and bias of the norm lie at ``at``."""
    z = z - (tl.sum(z, 1) / W)[:, None]
    scale = (1.0 / tl.sqrt(tl.sum(z * z, 1) / W + EPS))[:, None]
    hat = z * scale
    n = hat * vector(at, W)[None, :] + vector(at + W, W)[None, :]
    return n * tl.sigmoid(n), hat, scale


@triton.jit
def norm_act_backward(d, hat, scale, at, grads, W: tl.constexpr):
    """Gradient of z; those of weight and bias go to ``grads``."""
    weight = vector(at, W)[None, :]
    n = hat * weight + vector(at + W, W)[None, :]
    gate = tl.sigmoid(n)
    d = d * gate * (1.0 + n * (1.0 - gate))
    put_vector(grads, tl.sum(d * hat, 0), W)
    put_vector(grads + W, tl.sum(d, 0), W)
    d = d * weight
    return scale * (d - (tl.sum(d, 1) / W)[:, None] - hat * (tl.sum(d * hat, 1) / W)[:, None])


@triton.jit
def unit(e, at, W: tl.constexpr, PRECISION: tl.constexpr):
    """SiLU(LayerNorm(Linear(e))), and what its gradient needs."""
    z = linear(e, at, W, W, PRECISION) + vector(at + W * W, W)[None, :]
    return norm_act(z, at + W * W + W, W)


@triton.jit
def unit_backward(d, e, hat, scale, at, grads, W: tl.constexpr, PRECISION: tl.constexpr):
    """Gradient of e; those of the weights go to ``grads``."""
    d = norm_act_backward(d, hat, scale, at + W * W + W, grads + W * W + W, W)
    put_linear_gradient(grads, d, e, W, W, True, PRECISION)
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
def phi_forward(
    slots,
    weights,  # of φ
    eigvals,
    eigmask,
    states,  # [BLOCKS + 1, slots, KP, W]: before every block, and Φ
    graphs,
    params_stride,
    BLOCKS: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """E ← e + mean_l(pool(e_l)) ⊙ update(e), BLOCKS times; Φ is zero where there is no eigenvalue."""
    slot = tl.program_id(0)
    total = tl.num_programs(0)
    weights += (slot // graphs) * params_stride
    root, valid, count = spectrum_of(eigvals, eigmask, tl.load(slots + slot * SLOT), K, KP)
    z = root[:, None] * vector(weights, W)[None, :] + vector(weights + W, W)[None, :]
    e, _, _ = norm_act(z, weights + 2 * W, W)
    size = W * W + 3 * W
    pools = weights + 4 * W
    for block in range(BLOCKS):
        tl.store(tile_at(states, block * total + slot, KP, W), e)
        pool = pools + block * (2 * size)
        update = pool + BLOCKS * (2 * size)
        pooled, _, _ = unit(e, pool, W, PRECISION)
        pooled, _, _ = unit(pooled, pool + size, W, PRECISION)
        mean = tl.sum(tl.where(valid[:, None], pooled, 0.0), 0) / count
        change, _, _ = unit(e, update, W, PRECISION)
        change, _, _ = unit(change, update + size, W, PRECISION)
        e += mean[None, :] * change
    tl.store(tile_at(states, BLOCKS * total + slot, KP, W), tl.where(valid[:, None], e, 0.0))


@triton.jit
def phi_backward(
    slots,
    weights,
    grads,
    eigvals,
    eigmask,
    states,
    d_phi,  # [layers, slots, KP, W]
    graphs,
    layers,
    params_stride,
    BLOCKS: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of the weights of φ from those of Φ in every layer; what is inside a block is computed again."""
    slot = tl.program_id(0)
    total = tl.num_programs(0)
    weights += (slot // graphs) * params_stride
    grads += slot.to(tl.int64) * params_stride
    root, valid, count = spectrum_of(eigvals, eigmask, tl.load(slots + slot * SLOT), K, KP)
    d = tl.load(tile_at(d_phi, slot, KP, W))
    for layer in range(1, layers):
        d += tl.load(tile_at(d_phi, layer * total + slot, KP, W))
    d = tl.where(valid[:, None], d, 0.0)
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
        d_pooled = unit_backward(d_pooled, inner, hat, scale, at, grads + pool + size, W, PRECISION)
        at = weights + pool
        d += unit_backward(d_pooled, e, inner_hat, inner_scale, at, grads + pool, W, PRECISION)
        at = weights + update + size
        d_change = unit_backward(d_change, middle, change_hat, change_scale, at, grads + update + size, W, PRECISION)
        at = weights + update
        d += unit_backward(d_change, e, middle_hat, middle_scale, at, grads + update, W, PRECISION)
    z = root[:, None] * vector(weights, W)[None, :] + vector(weights + W, W)[None, :]
    _, hat, scale = norm_act(z, weights + 2 * W, W)
    d = norm_act_backward(d, hat, scale, weights + 2 * W, grads + 2 * W, W)
    put_vector(grads, tl.sum(d * root[:, None], 0), W)
    put_vector(grads + W, tl.sum(d, 0), W)


@triton.jit
def put_gains(
    at, phi, query, key, K: tl.constexpr, KP: tl.constexpr, C: tl.constexpr, W: tl.constexpr,
    SHARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A = (ΦW_q) ⊙ (ΦW_k), summed over channels where it is shared."""
    gains = linear(phi, query, W, C, PRECISION) * linear(phi, key, W, C, PRECISION)
    k = tl.arange(0, KP)
    if SHARED:
        tl.store(at + k, tl.sum(gains, 1), mask=k < K)
    else:
        tl.store(at + k[:, None] * C + tl.arange(0, C)[None, :], gains, mask=(k < K)[:, None])


@triton.jit
def gains_backward_of(
    d_gains, phi, query, key, query_grads, key_grads, K: tl.constexpr, KP: tl.constexpr, C: tl.constexpr,
    W: tl.constexpr, SHARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of W_q and W_k; returns that of Φ."""
    k = tl.arange(0, KP)[:, None]
    if SHARED:
        d = tl.load(d_gains + k, mask=k < K, other=0.0)
    else:
        d = tl.load(d_gains + k * C + tl.arange(0, C)[None, :], mask=k < K, other=0.0)
    d_query = d * linear(phi, key, W, C, PRECISION)
    d_key = d * linear(phi, query, W, C, PRECISION)
    put_matrix(query_grads, product(tl.trans(d_query), phi, PRECISION), C, W)
    put_matrix(key_grads, product(tl.trans(d_key), phi, PRECISION), C, W)
    d_phi = product(d_query, matrix(query, C, W), PRECISION)
    return d_phi + product(d_key, matrix(key, C, W), PRECISION)


@triton.jit
def gains_forward(
    weights,  # of the first layer
    phi,  # [slots, KP, W]
    gains,  # [layers, slots, K] or [layers, slots, K, C]
    self_gains,
    graphs,
    params_stride,
    layer_stride,
    LIN_Q: tl.constexpr,
    LIN_K: tl.constexpr,
    LIN_SQ: tl.constexpr,
    LIN_SK: tl.constexpr,
    SHARED: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gains of a slot in a layer: program (slot, layer)."""
    slot = tl.program_id(0)
    place = tl.program_id(1) * tl.num_programs(0) + slot
    weights += (slot // graphs) * params_stride + tl.program_id(1) * layer_stride
    width: tl.constexpr = K if SHARED else K * C
    phi_tile = tl.load(tile_at(phi, slot, KP, W))
    put_gains(gains + place * width, phi_tile, weights + LIN_Q, weights + LIN_K, K, KP, C, W, SHARED, PRECISION)
    if LIN_SQ >= 0:
        put_gains(
            self_gains + place * width, phi_tile, weights + LIN_SQ, weights + LIN_SK, K, KP, C, W, SHARED, PRECISION
        )


@triton.jit
def gains_backward(
    weights,
    grads,
    phi,
    d_gains,
    d_self_gains,
    d_phi,  # [layers, slots, KP, W]
    graphs,
    params_stride,
    layer_stride,
    LIN_Q: tl.constexpr,
    LIN_K: tl.constexpr,
    LIN_SQ: tl.constexpr,
    LIN_SK: tl.constexpr,
    SHARED: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    W: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Program (slot, layer) of the reverse."""
    slot = tl.program_id(0)
    layer = tl.program_id(1)
    place = layer * tl.num_programs(0) + slot
    weights += (slot // graphs) * params_stride + layer * layer_stride
    grads += slot.to(tl.int64) * params_stride + layer * layer_stride
    width: tl.constexpr = K if SHARED else K * C
    phi_tile = tl.load(tile_at(phi, slot, KP, W))
    d = gains_backward_of(
        d_gains + place * width, phi_tile, weights + LIN_Q, weights + LIN_K, grads + LIN_Q, grads + LIN_K,
        K, KP, C, W, SHARED, PRECISION,
    )  # fmt: skip
    if LIN_SQ >= 0:
        d += gains_backward_of(
            d_self_gains + place * width, phi_tile, weights + LIN_SQ, weights + LIN_SK, grads + LIN_SQ,
            grads + LIN_SK, K, KP, C, W, SHARED, PRECISION,
        )  # fmt: skip
    tl.store(tile_at(d_phi, place, KP, W), d)
