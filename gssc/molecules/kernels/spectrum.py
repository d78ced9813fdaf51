"""φ of the eigenvalues of every graph (`DeepSetPhi`) and the gains of all layers, forward and backward.

Eigenvalues of a graph are the rows of a tile [KP, W], W channels of φ. What a graph does with them is in
``gssc/ops/phi/kernels.py``.
"""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import SLOT, gains_of, put_gains, this_slot
from gssc.ops.phi.kernels import phi_backward_of, phi_of, spectrum_of
from gssc.ops.tile_kernels import linear, matrix, product, put_matrix, tile_at


@triton.jit
def phi_forward(batch, data, spectrum, M: tl.constexpr):
    """E ← e + mean_l(pool(e_l)) ⊙ update(e), BLOCKS times; Φ is zero where there is no eigenvalue."""
    slot, replica, _ = this_slot(batch)
    total = tl.num_programs(0)
    weights = batch.params + replica * batch.params_stride + M.PHI
    graph = tl.load(batch.slots + slot * SLOT)
    root, valid, count = spectrum_of(data.eigvals, data.eigmask, graph, M.K, M.KP)
    e = phi_of(root, valid, count, weights, spectrum.states, slot, total, M.BLOCKS, M.KP, M.W, M.PRECISION)
    tl.store(tile_at(spectrum.states, M.BLOCKS * total + slot, M.KP, M.W), tl.where(valid[:, None], e, 0.0))


@triton.jit
def phi_backward(batch, data, spectrum, layers, M: tl.constexpr):
    """Gradients of the weights of φ from those of Φ in every layer; what is inside a block is computed again."""
    slot, replica, _ = this_slot(batch)
    total = tl.num_programs(0)
    weights = batch.params + replica * batch.params_stride + M.PHI
    grads = batch.grads + slot.to(tl.int64) * batch.params_stride + M.PHI
    graph = tl.load(batch.slots + slot * SLOT)
    root, valid, count = spectrum_of(data.eigvals, data.eigmask, graph, M.K, M.KP)
    d = tl.load(tile_at(spectrum.d_phi, slot, M.KP, M.W))
    for layer in range(1, layers):
        d += tl.load(tile_at(spectrum.d_phi, layer * total + slot, M.KP, M.W))
    d = tl.where(valid[:, None], d, 0.0)
    phi_backward_of(
        d, root, valid, count, weights, grads, spectrum.states, slot, total, M.BLOCKS, M.KP, M.W, M.PRECISION
    )


@triton.jit
def gains_from(phi, query, key, M: tl.constexpr):
    """A = (ΦW_q) ⊙ (ΦW_k)."""
    return linear(phi, query, M.W, M.C, M.PRECISION) * linear(phi, key, M.W, M.C, M.PRECISION)


@triton.jit
def gains_backward_of(d, phi, query, key, query_grads, key_grads, M: tl.constexpr):
    """Gradients of W_q and W_k; returns that of Φ."""
    d_query = d * linear(phi, key, M.W, M.C, M.PRECISION)
    d_key = d * linear(phi, query, M.W, M.C, M.PRECISION)
    put_matrix(query_grads, product(tl.trans(d_query), phi, M.PRECISION), M.C, M.W)
    put_matrix(key_grads, product(tl.trans(d_key), phi, M.PRECISION), M.C, M.W)
    d_phi = product(d_query, matrix(query, M.C, M.W), M.PRECISION)
    return d_phi + product(d_key, matrix(key, M.C, M.W), M.PRECISION)


@triton.jit
def gains_forward(batch, spectrum, first_layer, layer_stride, M: tl.constexpr):
    """Gains of a slot in a layer: program (slot, layer)."""
    slot, replica, _ = this_slot(batch)
    layer = tl.program_id(1)
    place = layer * tl.num_programs(0) + slot
    weights = first_layer.weights + (replica * batch.params_stride + layer * layer_stride)
    phi = tl.load(tile_at(spectrum.phi, slot, M.KP, M.W))
    put_gains(first_layer.gains, place, gains_from(phi, weights + M.LIN_Q, weights + M.LIN_K, M), M)
    if M.LIN_SQ >= 0:
        put_gains(first_layer.self_gains, place, gains_from(phi, weights + M.LIN_SQ, weights + M.LIN_SK, M), M)


@triton.jit
def gains_backward(batch, spectrum, first_layer, layer_stride, M: tl.constexpr):
    """Program (slot, layer) of the reverse."""
    slot, replica, _ = this_slot(batch)
    layer = tl.program_id(1)
    place = layer * tl.num_programs(0) + slot
    at = first_layer.weights + (replica * batch.params_stride + layer * layer_stride)
    to = first_layer.grads + (slot.to(tl.int64) * batch.params_stride + layer * layer_stride)
    phi = tl.load(tile_at(spectrum.phi, slot, M.KP, M.W))
    d = gains_of(first_layer.d_gains, place, M)
    d_phi = gains_backward_of(d, phi, at + M.LIN_Q, at + M.LIN_K, to + M.LIN_Q, to + M.LIN_K, M)
    if M.LIN_SQ >= 0:
        d = gains_of(first_layer.d_self_gains, place, M)
        d_phi += gains_backward_of(d, phi, at + M.LIN_SQ, at + M.LIN_SK, to + M.LIN_SQ, to + M.LIN_SK, M)
    tl.store(tile_at(spectrum.d_phi, place, M.KP, M.W), d_phi)
