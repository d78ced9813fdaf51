"""A layer backward, in two kernels that are cut at its BatchNorms: `ffn_backward`, then `mix_backward`.

Gradients of weights are written per slot, into its row of ``grads``, and added up later. Each kernel also leaves, per
slot, the two sums that the gradient of the BatchNorm before it needs: of d and of d ⊙ (its standardised input).
"""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import (
    SLOT,
    affine,
    batch_sum,
    dropped,
    graph_in,
    norm_gradient,
    rows_in_batch,
    standardized,
    standardized_again,
    this_slot,
    tile_of,
    with_bias,
)
from gssc.molecules.kernels.forward import (
    GLOBAL,
    LOCAL,
    OUTPUT,
    bond_matrix,
    degree_factor,
    edge_vector,
    eigenvectors,
    ffn_hidden,
    gains_of,
    put_gains,
    self_scale,
)
from gssc.ops.tile_kernels import linear, matrix, product, put_linear_gradient, put_vector, tile_at, vector


@triton.jit(do_not_specialize=["salt"])
def ffn_backward(batch, layer, back, salt, p, M: tl.constexpr):
    """From the gradient of the layer's output to that of h."""
    slot, replica, first = this_slot(batch)
    total = tl.num_programs(0)
    shift = replica * batch.params_stride
    weights = layer.weights + shift
    grads = layer.grads + slot.to(tl.int64) * batch.params_stride
    _, _, valid, key = graph_in(batch, slot, M.T)

    # The norm that ends the layer.
    rows = rows_in_batch(batch.slots + first * SLOT, batch.graphs, M.CHUNK)
    near = back.dx_parts + first * (2 * M.C)
    far = back.dx_parts + (total + first) * (2 * M.C)
    sum_d = batch_sum(near, batch.graphs, 2 * M.C, M) + batch_sum(far, batch.graphs, 2 * M.C, M)
    sum_d_hat = batch_sum(near + M.C, batch.graphs, 2 * M.C, M) + batch_sum(far + M.C, batch.graphs, 2 * M.C, M)
    near = back.dx_parts + slot * (2 * M.C)
    far = back.dx_parts + (total + slot) * (2 * M.C)
    put_vector(grads + M.NORM_FFN, vector(near + M.C, M.C) + vector(far + M.C, M.C), M.C)
    put_vector(grads + M.NORM_FFN + M.C, vector(near, M.C) + vector(far, M.C), M.C)
    d = tile_of(back.dx, slot, valid, M)
    d += tile_of(back.dx, total + slot, valid, M)
    kept = replica * (2 * M.C)
    y_hat, scale = standardized_again(tile_of(layer.y, slot, valid, M), layer.after.kept + kept, valid, M.C)
    d = norm_gradient(d, y_hat, scale, vector(weights + M.NORM_FFN, M.C), rows, sum_d, sum_d_hat, valid)

    # The network, whose hidden layer is computed again.
    a = tile_of(layer.mixed, slot, valid, M)
    b = tile_of(layer.mixed, total + slot, valid, M)
    a_hat, _ = standardized_again(a, layer.local.kept + kept, valid, M.C)
    b_hat, _ = standardized_again(b, layer.glob.kept + kept, valid, M.C)
    h = affine(a_hat, layer.local.weight + shift, valid, M.C) + affine(b_hat, layer.glob.weight + shift, valid, M.C)
    hidden = ffn_hidden(h, weights, p, key, salt, slot - first, M)
    d_out = dropped(d, p, key, salt + OUTPUT, slot - first, M.T, M.C)
    put_linear_gradient(grads + M.FFN_2, d_out, hidden, 2 * M.C, M.C, True, M.PRECISION)
    d_hidden = product(d_out, matrix(weights + M.FFN_2, M.C, 2 * M.C), M.PRECISION)
    # What was dropped or negative is zero in ``hidden``; the rest was scaled up.
    d_hidden = tl.where(hidden > 0.0, d_hidden * (1.0 / (1.0 - p)), 0.0)
    put_linear_gradient(grads + M.FFN_1, d_hidden, h, M.C, 2 * M.C, True, M.PRECISION)
    d += product(d_hidden, matrix(weights + M.FFN_1, 2 * M.C, M.C), M.PRECISION)
    d = tl.where(valid, d, 0.0)
    tl.store(tile_at(back.dh, slot, M.T, M.C), d, mask=valid)
    sums = back.dh_parts + slot * (3 * M.C)
    put_vector(sums, tl.sum(d, 0), M.C)
    put_vector(sums + M.C, tl.sum(d * a_hat, 0), M.C)
    put_vector(sums + 2 * M.C, tl.sum(d * b_hat, 0), M.C)


@triton.jit
def layer_input(layer, batch, slot, replica, normed, valid, M: tl.constexpr):
    """What a layer is given, and the same before weight and bias of the norm that ends the layer before."""
    hat = tile_of(layer.x, slot, valid, M)
    kept = layer.before.kept + replica * (2 * M.C)
    c = tl.arange(0, M.C)
    mean = tl.load(kept + c, mask=c < normed * M.C, other=0.0)
    scale = tl.load(kept + M.C + c, mask=c < normed * M.C, other=1.0)
    x = hat
    if normed:
        hat = standardized(hat, mean, scale, valid)
        x = affine(hat, layer.before.weight + replica * batch.params_stride, valid, M.C)
    return x, hat


@triton.jit(do_not_specialize=["salt", "normed", "accumulate"])
def mix_backward(batch, data, layer, encoders, back, salt, normed, accumulate, p_local, p_global, M: tl.constexpr):
    """From the gradient of h to that of the layer's input: program (slot, 0) its local part, (slot, 1) its global.

    ``accumulate``: layers behind this one have written gradients of the bond types.
    """
    slot, replica, first = this_slot(batch)
    branch = tl.program_id(1)
    total = tl.num_programs(0)
    weights = layer.weights + replica * batch.params_stride
    row = slot.to(tl.int64) * batch.params_stride
    grads = layer.grads + row
    start, n, valid, key = graph_in(batch, slot, M.T)
    c = tl.arange(0, M.C)

    # The norm that ends this branch.
    norm_at = branch * (M.NORM_GLOBAL - M.NORM_LOCAL) + M.NORM_LOCAL
    rows = rows_in_batch(batch.slots + first * SLOT, batch.graphs, M.CHUNK)
    sums = back.dh_parts + first * (3 * M.C)
    sum_d = batch_sum(sums, batch.graphs, 3 * M.C, M)
    sum_d_hat = batch_sum(sums + (1 + branch) * M.C, batch.graphs, 3 * M.C, M)
    sums = back.dh_parts + slot * (3 * M.C)
    put_vector(grads + norm_at, vector(sums + (1 + branch) * M.C, M.C), M.C)
    put_vector(grads + norm_at + M.C, vector(sums, M.C), M.C)
    kept = layer.local.kept + (branch * (total // batch.graphs) + replica) * (2 * M.C)
    hat, scale = standardized_again(tile_of(layer.mixed, branch * total + slot, valid, M), kept, valid, M.C)
    d = tile_of(back.dh, slot, valid, M)
    d = norm_gradient(d, hat, scale, vector(weights + norm_at, M.C), rows, sum_d, sum_d_hat, valid)

    x, x_hat = layer_input(layer, batch, slot, replica, normed, valid, M)
    if branch == 0:
        d_far = dropped(d, p_local, key, salt + LOCAL, slot - first, M.T, M.C)
        gathered = tile_of(layer.messages, slot, valid, M)
        hidden = tl.maximum(with_bias(gathered, weights + M.LOCAL_1, M.C, M.C, M), 0.0)
        put_linear_gradient(grads + M.LOCAL_2, d_far, hidden, M.C, M.C, True, M.PRECISION)
        d_hidden = product(d_far, matrix(weights + M.LOCAL_2, M.C, M.C), M.PRECISION)
        d_hidden = tl.where(hidden > 0.0, d_hidden, 0.0)
        put_linear_gradient(grads + M.LOCAL_1, d_hidden, gathered, M.C, M.C, True, M.PRECISION)
        d_gathered = product(d_hidden, matrix(weights + M.LOCAL_1, M.C, M.C), M.PRECISION)
        d += d_gathered
        BONDS: tl.constexpr = M.BONDS
        bond = bond_matrix(data, batch, slot, n, M.T)
        for kind in tl.static_range(BONDS):
            e = edge_vector(encoders.edges + replica * batch.params_stride, kind, M.C, M.EDGES)
            d_edge = product(tl.trans((bond == kind + 1).to(tl.float32)), d_gathered, M.PRECISION)
            d_edge = tl.where(x + e > 0.0, d_edge, 0.0)
            d += d_edge
            if M.EDGES:
                at = encoders.edge_grads + row + kind * M.C
                behind = tl.load(at + c, mask=c < accumulate * M.C, other=0.0)
                put_vector(at, behind + tl.sum(d_edge, 0), M.C)
    else:
        d_far = dropped(d, p_global, key, salt + GLOBAL, slot - first, M.T, M.C)
        scaled = x
        if M.DEGREE >= 0:
            factor, logs = degree_factor(weights, data, start, n, M)
            scaled = x * factor
        p = eigenvectors(data, start, valid, M)
        state = product(tl.trans(p), scaled, M.PRECISION)
        gain = gains_of(layer.gains, slot, M)
        seen = linear(state, weights + M.LIN_O, M.C, M.C, M.PRECISION)
        d_state = product(tl.trans(p), d_far, M.PRECISION)
        if M.LIN_OUT >= 0:
            put_linear_gradient(grads + M.LIN_OUT, d_state, gain * seen, M.C, M.C, False, M.PRECISION)
            put_vector(grads + M.LIN_OUT + M.C * M.C, tl.sum(d_far, 0), M.C)
            d_state = product(d_state, matrix(weights + M.LIN_OUT, M.C, M.C), M.PRECISION)
        put_gains(layer.d_gains, slot, d_state * seen, M)
        d_state = gain * d_state
        put_linear_gradient(grads + M.LIN_O, d_state, state, M.C, M.C, False, M.PRECISION)
        d_state = product(d_state, matrix(weights + M.LIN_O, M.C, M.C), M.PRECISION)
        d_scaled = product(p, d_state, M.PRECISION)
        if M.LIN_S >= 0:
            scale_s = self_scale(p, gains_of(layer.self_gains, slot, M), M)
            d_self = d_far * linear(scaled, weights + M.LIN_S, M.C, M.C, M.PRECISION)
            if M.SHARED:
                k = tl.arange(0, M.KP)
                d_gains = tl.sum(p * p * tl.sum(d_self, 1)[:, None], 0)
                tl.store(layer.d_self_gains + slot * M.K + k, d_gains, mask=k < M.K)
            else:
                put_gains(layer.d_self_gains, slot, product(tl.trans(p * p), d_self, M.PRECISION), M)
            d_self = scale_s * d_far
            put_linear_gradient(grads + M.LIN_S, d_self, scaled, M.C, M.C, False, M.PRECISION)
            d_scaled += product(d_self, matrix(weights + M.LIN_S, M.C, M.C), M.PRECISION)
        if M.DEGREE >= 0:
            put_vector(grads + M.DEGREE, tl.sum(d_scaled * x, 0), M.C)
            put_vector(grads + M.DEGREE + M.C, tl.sum(d_scaled * x * logs, 0), M.C)
            d_scaled = d_scaled * factor
        d += d_scaled
    d = tl.where(valid, d, 0.0)
    place = branch * total + slot
    tl.store(tile_at(back.dx, place, M.T, M.C), d, mask=valid)
    put_vector(back.dx_parts + place * (2 * M.C), tl.sum(d, 0), M.C)
    put_vector(back.dx_parts + place * (2 * M.C) + M.C, tl.sum(d * x_hat, 0), M.C)
