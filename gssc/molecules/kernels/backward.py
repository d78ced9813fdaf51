"""A layer backward, in two kernels that are cut at its BatchNorms: `ffn_backward`, then `mix_backward`.

Gradients of weights are written per slot, into its row of ``grads``, and added up later. Each kernel also leaves, per
slot, the two sums that the gradient of the BatchNorm before it needs: of d and of d ⊙ (its standardised input).
"""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import SLOT, batch_sum, dropped, norm_gradient, rows_in_batch, standardized
from gssc.molecules.kernels.forward import (
    GLOBAL,
    HIDDEN,
    LOCAL,
    OUTPUT,
    bond_matrix,
    degree_factor,
    edge_vector,
    eigenvectors,
    ffn_input,
    gains_of,
    layer_input,
    own_scale,
)
from gssc.ops.tile_kernels import linear, matrix, product, put_linear_gradient, put_vector, tile_at, vector


@triton.jit(do_not_specialize=["salt"])
def ffn_backward(
    slots,
    weights,
    grads,  # [slots, params_stride], from this layer on
    kept,  # of norm_local and norm_global, [2, replicas, 2, C]
    kept_y,  # of norm_ffn, [replicas, 2, C]
    mixed,
    y,
    dx,  # [2, slots, T, C], gradient of the layer's output, in two parts
    dx_parts,  # [2, slots, 2, C]
    dh,  # [slots, T, C]
    dh_parts,  # [slots, 3, C]: sums of dh, of dh ⊙ â, of dh ⊙ b̂
    graphs,
    salt,
    p,
    params_stride,
    NORM_LOCAL: tl.constexpr,
    NORM_GLOBAL: tl.constexpr,
    NORM_FFN: tl.constexpr,
    FFN_1: tl.constexpr,
    FFN_2: tl.constexpr,
    T: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """From the gradient of the layer's output to that of h."""
    slot = tl.program_id(0)
    replica = slot // graphs
    first = replica * graphs
    total = tl.num_programs(0)
    weights += replica * params_stride
    grads += slot.to(tl.int64) * params_stride
    n = tl.load(slots + slot * SLOT + 2).to(tl.int32)
    key = tl.load(slots + slot * SLOT + 4).to(tl.uint32)
    valid = (tl.arange(0, T) < n)[:, None]

    # The norm that ends the layer.
    rows = rows_in_batch(slots + first * SLOT, graphs, CHUNK)
    near = dx_parts + first * (2 * C)
    far = dx_parts + (total + first) * (2 * C)
    sum_d = batch_sum(near, graphs, 2 * C, C, CHUNK) + batch_sum(far, graphs, 2 * C, C, CHUNK)
    sum_d_hat = batch_sum(near + C, graphs, 2 * C, C, CHUNK) + batch_sum(far + C, graphs, 2 * C, C, CHUNK)
    own_near = dx_parts + slot * (2 * C)
    own_far = dx_parts + (total + slot) * (2 * C)
    put_vector(grads + NORM_FFN, vector(own_near + C, C) + vector(own_far + C, C), C)
    put_vector(grads + NORM_FFN + C, vector(own_near, C) + vector(own_far, C), C)
    d = tl.load(tile_at(dx, slot, T, C), mask=valid, other=0.0)
    d += tl.load(tile_at(dx, total + slot, T, C), mask=valid, other=0.0)
    scale = vector(kept_y + replica * (2 * C) + C, C)
    y_hat = tl.load(tile_at(y, slot, T, C), mask=valid, other=0.0)
    y_hat = standardized(y_hat, vector(kept_y + replica * (2 * C), C), scale, valid)
    d = norm_gradient(d, y_hat, scale, vector(weights + NORM_FFN, C), rows, sum_d, sum_d_hat, valid)

    # The network, whose hidden layer is computed again.
    a = tl.load(tile_at(mixed, slot, T, C), mask=valid, other=0.0)
    b = tl.load(tile_at(mixed, total + slot, T, C), mask=valid, other=0.0)
    stats_a = kept + replica * (2 * C)
    stats_b = kept + (total // graphs + replica) * (2 * C)
    h, a_hat, b_hat = ffn_input(a, b, weights + NORM_LOCAL, weights + NORM_GLOBAL, stats_a, stats_b, valid, C)
    hidden = linear(h, weights + FFN_1, C, 2 * C, PRECISION) + vector(weights + FFN_1 + 2 * C * C, 2 * C)[None, :]
    hidden = dropped(tl.maximum(hidden, 0.0), p, key, salt + HIDDEN, slot - first, T, 2 * C)
    d_out = dropped(d, p, key, salt + OUTPUT, slot - first, T, C)
    put_linear_gradient(grads + FFN_2, d_out, hidden, 2 * C, C, True, PRECISION)
    d_hidden = product(d_out, matrix(weights + FFN_2, C, 2 * C), PRECISION)
    # What was dropped or negative is zero in ``hidden``; the rest was scaled up.
    d_hidden = tl.where(hidden > 0.0, d_hidden * (1.0 / (1.0 - p)), 0.0)
    put_linear_gradient(grads + FFN_1, d_hidden, h, C, 2 * C, True, PRECISION)
    d += product(d_hidden, matrix(weights + FFN_1, 2 * C, C), PRECISION)
    d = tl.where(valid, d, 0.0)
    tl.store(tile_at(dh, slot, T, C), d, mask=valid)
    put_vector(dh_parts + slot * (3 * C), tl.sum(d, 0), C)
    put_vector(dh_parts + slot * (3 * C) + C, tl.sum(d * a_hat, 0), C)
    put_vector(dh_parts + slot * (3 * C) + 2 * C, tl.sum(d * b_hat, 0), C)


@triton.jit(do_not_specialize=["salt", "normed", "accumulate"])
def mix_backward(
    slots,
    weights,
    grads,
    edges,
    edge_grads,  # [slots, params_stride], from the embeddings of bond types on
    norm,  # of the layer before, as in `mix_forward`
    kept_x,
    kept,  # of norm_local and norm_global
    bonds,
    vectors,
    log_degree,
    gains,
    self_gains,
    d_gains,
    d_self_gains,
    y,
    messages,
    mixed,
    dh,
    dh_parts,
    dx,
    dx_parts,
    graphs,
    salt,
    normed,
    accumulate,  # whether layers behind this one have written gradients of the bond types
    p_local,
    p_global,
    params_stride,
    LOCAL_1: tl.constexpr,
    LOCAL_2: tl.constexpr,
    NORM_LOCAL: tl.constexpr,
    NORM_GLOBAL: tl.constexpr,
    LIN_O: tl.constexpr,
    LIN_S: tl.constexpr,
    LIN_OUT: tl.constexpr,
    DEGREE: tl.constexpr,
    EDGES: tl.constexpr,
    SHARED: tl.constexpr,
    BONDS: tl.constexpr,
    T: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """From the gradient of h to that of the layer's input: program (slot, 0) its local part, (slot, 1) its global."""
    slot = tl.program_id(0)
    branch = tl.program_id(1)
    replica = slot // graphs
    first = replica * graphs
    total = tl.num_programs(0)
    weights += replica * params_stride
    grads += slot.to(tl.int64) * params_stride
    start = tl.load(slots + slot * SLOT + 1)
    n = tl.load(slots + slot * SLOT + 2).to(tl.int32)
    key = tl.load(slots + slot * SLOT + 4).to(tl.uint32)
    lines = tl.arange(0, T)
    valid = (lines < n)[:, None]
    c = tl.arange(0, C)

    # The norm that ends this branch.
    norm_at = branch * (NORM_GLOBAL - NORM_LOCAL) + NORM_LOCAL
    rows = rows_in_batch(slots + first * SLOT, graphs, CHUNK)
    sum_d = batch_sum(dh_parts + first * (3 * C), graphs, 3 * C, C, CHUNK)
    sum_d_hat = batch_sum(dh_parts + first * (3 * C) + (1 + branch) * C, graphs, 3 * C, C, CHUNK)
    put_vector(grads + norm_at, vector(dh_parts + slot * (3 * C) + (1 + branch) * C, C), C)
    put_vector(grads + norm_at + C, vector(dh_parts + slot * (3 * C), C), C)
    stats = kept + (branch * (total // graphs) + replica) * (2 * C)
    scale = vector(stats + C, C)
    hat = tl.load(tile_at(mixed, branch * total + slot, T, C), mask=valid, other=0.0)
    hat = standardized(hat, vector(stats, C), scale, valid)
    d = tl.load(tile_at(dh, slot, T, C), mask=valid, other=0.0)
    d = norm_gradient(d, hat, scale, vector(weights + norm_at, C), rows, sum_d, sum_d_hat, valid)

    x = tl.load(tile_at(y, slot, T, C), mask=valid, other=0.0)
    kept_x += replica * (2 * C)
    x_mean = tl.load(kept_x + c, mask=c < normed * C, other=0.0)
    x_scale = tl.load(kept_x + C + c, mask=c < normed * C, other=1.0)
    x, x_hat = layer_input(x, norm + replica * params_stride, x_mean, x_scale, normed, valid, C)

    if branch == 0:
        d_far = dropped(d, p_local, key, salt + LOCAL, slot - first, T, C)
        gathered = tl.load(tile_at(messages, slot, T, C), mask=valid, other=0.0)
        hidden = linear(gathered, weights + LOCAL_1, C, C, PRECISION) + vector(weights + LOCAL_1 + C * C, C)[None, :]
        hidden = tl.maximum(hidden, 0.0)
        put_linear_gradient(grads + LOCAL_2, d_far, hidden, C, C, True, PRECISION)
        d_hidden = product(d_far, matrix(weights + LOCAL_2, C, C), PRECISION)
        d_hidden = tl.where(hidden > 0.0, d_hidden, 0.0)
        put_linear_gradient(grads + LOCAL_1, d_hidden, gathered, C, C, True, PRECISION)
        d_gathered = product(d_hidden, matrix(weights + LOCAL_1, C, C), PRECISION)
        d += d_gathered
        bond = bond_matrix(bonds, tl.load(slots + slot * SLOT + 3), n, T)
        edge_grads += slot.to(tl.int64) * params_stride
        for kind in tl.static_range(BONDS):
            e = edge_vector(edges + replica * params_stride, kind, C, EDGES)
            back = product(tl.trans((bond == kind + 1).to(tl.float32)), d_gathered, PRECISION)
            back = tl.where(x + e > 0.0, back, 0.0)
            d += back
            if EDGES:
                before = tl.load(edge_grads + kind * C + c, mask=c < accumulate * C, other=0.0)
                put_vector(edge_grads + kind * C, before + tl.sum(back, 0), C)
    else:
        d_far = dropped(d, p_global, key, salt + GLOBAL, slot - first, T, C)
        scaled = x
        if DEGREE >= 0:
            factor, logs = degree_factor(weights, log_degree, start, lines, n, DEGREE, C)
            scaled = x * factor
        p = eigenvectors(vectors, start, valid, T, K, KP)
        k = tl.arange(0, KP)
        state = product(tl.trans(p), scaled, PRECISION)
        gain = gains_of(gains, slot, K, KP, C, SHARED)
        seen = linear(state, weights + LIN_O, C, C, PRECISION)
        d_state = product(tl.trans(p), d_far, PRECISION)
        if LIN_OUT >= 0:
            put_linear_gradient(grads + LIN_OUT, d_state, gain * seen, C, C, False, PRECISION)
            put_vector(grads + LIN_OUT + C * C, tl.sum(d_far, 0), C)
            d_state = product(d_state, matrix(weights + LIN_OUT, C, C), PRECISION)
        if SHARED:
            tl.store(d_gains + slot * K + k, tl.sum(d_state * seen, 1), mask=k < K)
        else:
            at = d_gains + slot * (K * C) + k[:, None] * C + c[None, :]
            tl.store(at, d_state * seen, mask=(k < K)[:, None])
        d_state = gain * d_state
        put_linear_gradient(grads + LIN_O, d_state, state, C, C, False, PRECISION)
        d_state = product(d_state, matrix(weights + LIN_O, C, C), PRECISION)
        d_scaled = product(p, d_state, PRECISION)
        if LIN_S >= 0:
            own = own_scale(p, gains_of(self_gains, slot, K, KP, C, SHARED), SHARED, PRECISION)
            d_own = d_far * linear(scaled, weights + LIN_S, C, C, PRECISION)
            if SHARED:
                found = tl.sum(p * p * tl.sum(d_own, 1)[:, None], 0)
                tl.store(d_self_gains + slot * K + k, found, mask=k < K)
            else:
                at = d_self_gains + slot * (K * C) + k[:, None] * C + c[None, :]
                tl.store(at, product(tl.trans(p * p), d_own, PRECISION), mask=(k < K)[:, None])
            d_own = own * d_far
            put_linear_gradient(grads + LIN_S, d_own, scaled, C, C, False, PRECISION)
            d_scaled += product(d_own, matrix(weights + LIN_S, C, C), PRECISION)
        if DEGREE >= 0:
            put_vector(grads + DEGREE, tl.sum(d_scaled * x, 0), C)
            put_vector(grads + DEGREE + C, tl.sum(d_scaled * x * logs, 0), C)
            d_scaled = d_scaled * factor
        d += d_scaled
    d = tl.where(valid, d, 0.0)
    place = branch * total + slot
    tl.store(tile_at(dx, place, T, C), d, mask=valid)
    put_vector(dx_parts + place * (2 * C), tl.sum(d, 0), C)
    put_vector(dx_parts + place * (2 * C) + C, tl.sum(d * x_hat, 0), C)
