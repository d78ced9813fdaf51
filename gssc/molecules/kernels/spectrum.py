"""φ of the eigenvalues of every graph (`DeepSetPhi`) and the gains of all layers, forward and backward.

Eigenvalues of a graph are the rows of a tile [KP, W], W channels of φ. What a graph does with them is in ``deep_set``.
"""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import SLOT
from gssc.ops.deep_set.kernels import phi_backward_of, phi_of, spectrum_of
from gssc.ops.tile_kernels import linear, matrix, product, put_matrix, tile_at


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
    e = phi_of(root, valid, count, weights, states, slot, total, BLOCKS, KP, W, PRECISION)
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
    phi_backward_of(d, root, valid, count, weights, grads, states, slot, total, BLOCKS, KP, W, PRECISION)


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
