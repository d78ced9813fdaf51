"""A layer forward and backward, each in two kernels that are cut at its BatchNorms.

Forward `mix_forward`, then `ffn_forward`; backward `ffn_backward`, then `mix_backward`. Gradients of weights are
written per slot, into its row of ``grads``, and added up later. The kernels of backward also leave, per slot, the two
sums that the gradient of the BatchNorm before them needs: of d and of d ⊙ (its standardised input).
"""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import (
    SLOT,
    batch_sum,
    dropped,
    gains_of,
    graph_in,
    norm_gradient,
    normalized,
    normalized_again,
    put_gains,
    put_moments,
    rows_in_batch,
    rows_of,
    standardized_again,
    this_slot,
    tile_of,
    with_bias,
)
from gssc.ops.conv.kernels import self_scale
from gssc.ops.tile_kernels import linear, matrix, product, put_linear_gradient, put_vector, tile_at, vector

LOCAL = tl.constexpr(0)
GLOBAL = tl.constexpr(1)
HIDDEN = tl.constexpr(2)
OUTPUT = tl.constexpr(3)


@triton.jit
def bond_matrix(data, batch, slot, n, T: tl.constexpr):
    """[T, T]: row i, column j is 0, or 1 + the type of the edge from j to i."""
    i = tl.arange(0, T)[:, None]
    j = tl.arange(0, T)[None, :]
    start = tl.load(batch.slots + slot * SLOT + 3)
    return tl.load(data.bonds + start + i * n + j, mask=(i < n) & (j < n), other=0)


@triton.jit
def edge_vector(batch, replica, kind, C: tl.constexpr, EDGES: tl.constexpr):
    """Embedding of a bond type; zero where the model has none."""
    if EDGES >= 0:
        e = vector(batch.params + replica * batch.params_stride + EDGES + kind * C, C)
    else:
        e = tl.zeros([C], tl.float32)
    return e[None, :]


@triton.jit
def degree_factor(weights, data, start, n, M: tl.constexpr):
    """A + b log(1 + degree) [T, C], and the logarithm [T, 1]."""
    rows = tl.arange(0, M.T)
    logs = tl.load(data.log_degree + start + rows, mask=rows < n, other=0.0)[:, None]
    at = weights + M.DEGREE
    return vector(at, M.C)[None, :] + vector(at + M.C, M.C)[None, :] * logs, logs


@triton.jit(do_not_specialize=["salt", "normed", "training"])
def mix_forward(batch, data, layer, salt, normed, training, p_local, p_global, M: tl.constexpr):
    """Both branches up to their norms, side by side: program (slot, 0) is local, (slot, 1) is global.

    local: x + drop(MLP(x + Σ_t A_t relu(x + e_t)));  global: x + drop(P((A ⊙ PᵀX'W_oᵀ)W_outᵀ) + (P⊙P A_s) ⊙ X'W_sᵀ).
    The norm of the layer before comes first, if ``normed``.
    """
    slot, replica, first = this_slot(batch)
    weights = layer.weights + replica * batch.params_stride
    start, n, valid, key = graph_in(batch, slot, M.T)
    x = tile_of(layer.x, slot, valid, M)
    if normed:
        writes = (slot == first) & (tl.program_id(1) == 0)
        x, _ = normalized(x, layer.before, batch, replica, training, writes, valid, M)
    branch = tl.program_id(1)
    if branch == 0:
        BONDS: tl.constexpr = M.BONDS
        bond = bond_matrix(data, batch, slot, n, M.T)
        gathered = x
        for kind in tl.static_range(BONDS):
            e = edge_vector(batch, replica, kind, M.C, M.EDGES)
            gathered += product((bond == kind + 1).to(tl.float32), tl.maximum(x + e, 0.0), M.PRECISION)
        tl.store(tile_at(layer.messages, slot, M.T, M.C), gathered, mask=valid)
        hidden = tl.maximum(with_bias(gathered, weights + M.LOCAL_1, M.C, M.C, M), 0.0)
        far = with_bias(hidden, weights + M.LOCAL_2, M.C, M.C, M)
        far = dropped(far, p_local, key, salt + LOCAL, slot - first, M.T, M.C)
    else:
        scaled = x
        if M.DEGREE >= 0:
            factor, _ = degree_factor(weights, data, start, n, M)
            scaled = x * factor
        p = rows_of(data.vectors, start, valid, M.K, M.KP, M.T)
        state = product(tl.trans(p), scaled, M.PRECISION)
        state = gains_of(layer.gains, slot, M) * linear(state, weights + M.LIN_O, M.C, M.C, M.PRECISION)
        if M.LIN_OUT >= 0:
            state = linear(state, weights + M.LIN_OUT, M.C, M.C, M.PRECISION)
        far = product(p, state, M.PRECISION)
        if M.LIN_OUT >= 0:
            far += vector(weights + M.LIN_OUT + M.C * M.C, M.C)[None, :]
        if M.LIN_S >= 0:
            scale_s = self_scale(p, gains_of(layer.self_gains, slot, M), M.SHARED, M.PRECISION)
            far += scale_s * linear(scaled, weights + M.LIN_S, M.C, M.C, M.PRECISION)
        far = dropped(far, p_global, key, salt + GLOBAL, slot - first, M.T, M.C)
    result = tl.where(valid, x + far, 0.0)
    place = branch * tl.num_programs(0) + slot
    tl.store(tile_at(layer.mixed, place, M.T, M.C), result, mask=valid)
    put_moments(layer.local.parts + place * (2 * M.C), result, valid, n, M.C)


@triton.jit
def ffn_hidden(h, weights, p, key, salt, slot_in_batch, M: tl.constexpr):
    """drop(relu(W_1 h))."""
    hidden = tl.maximum(with_bias(h, weights + M.FFN_1, M.C, 2 * M.C, M), 0.0)
    return dropped(hidden, p, key, salt + HIDDEN, slot_in_batch, M.T, 2 * M.C)


@triton.jit(do_not_specialize=["salt", "training"])
def ffn_forward(batch, layer, salt, training, p, M: tl.constexpr):
    """Y = h + drop(W_2 drop(relu(W_1 h))) with h = norm(a) + norm(b), up to the norm that ends the layer."""
    slot, replica, first = this_slot(batch)
    weights = layer.weights + replica * batch.params_stride
    _, n, valid, key = graph_in(batch, slot, M.T)
    a = tile_of(layer.mixed, slot, valid, M)
    b = tile_of(layer.mixed, tl.num_programs(0) + slot, valid, M)
    a, _ = normalized(a, layer.local, batch, replica, training, slot == first, valid, M)
    b, _ = normalized(b, layer.glob, batch, replica, training, slot == first, valid, M)
    h = a + b
    hidden = ffn_hidden(h, weights, p, key, salt, slot - first, M)
    out = with_bias(hidden, weights + M.FFN_2, 2 * M.C, M.C, M)
    out = dropped(out, p, key, salt + OUTPUT, slot - first, M.T, M.C)
    result = tl.where(valid, h + out, 0.0)
    tl.store(tile_at(layer.y, slot, M.T, M.C), result, mask=valid)
    put_moments(layer.after.parts + slot * (2 * M.C), result, valid, n, M.C)


@triton.jit(do_not_specialize=["salt"])
def ffn_backward(batch, layer, back, salt, p, M: tl.constexpr):
    """From the gradient of the layer's output to that of h."""
    slot, replica, first = this_slot(batch)
    total = tl.num_programs(0)
    weights = layer.weights + replica * batch.params_stride
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
    kept = layer.after.kept + replica * (2 * M.C)
    y_hat, scale = standardized_again(tile_of(layer.y, slot, valid, M), kept, valid, M.C)
    d = norm_gradient(d, y_hat, scale, vector(weights + M.NORM_FFN, M.C), rows, sum_d, sum_d_hat, valid)

    # The network, whose hidden layer is computed again.
    a = tile_of(layer.mixed, slot, valid, M)
    b = tile_of(layer.mixed, total + slot, valid, M)
    a, a_hat = normalized_again(a, layer.local, batch, replica, valid, M)
    b, b_hat = normalized_again(b, layer.glob, batch, replica, valid, M)
    h = a + b
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


@triton.jit(do_not_specialize=["salt", "normed", "accumulate"])
def mix_backward(batch, data, layer, back, salt, normed, accumulate, p_local, p_global, M: tl.constexpr):
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

    # What the layer was given.
    x = tile_of(layer.x, slot, valid, M)
    x_hat = x
    if normed:
        x, x_hat = normalized_again(x, layer.before, batch, replica, valid, M)
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
            e = edge_vector(batch, replica, kind, M.C, M.EDGES)
            d_edge = product(tl.trans((bond == kind + 1).to(tl.float32)), d_gathered, M.PRECISION)
            d_edge = tl.where(x + e > 0.0, d_edge, 0.0)
            d += d_edge
            if M.EDGES >= 0:
                put_vector(batch.grads + row + M.EDGES + kind * M.C, tl.sum(d_edge, 0), M.C, accumulate)
    else:
        d_far = dropped(d, p_global, key, salt + GLOBAL, slot - first, M.T, M.C)
        scaled = x
        if M.DEGREE >= 0:
            factor, logs = degree_factor(weights, data, start, n, M)
            scaled = x * factor
        p = rows_of(data.vectors, start, valid, M.K, M.KP, M.T)
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
            scale_s = self_scale(p, gains_of(layer.self_gains, slot, M), M.SHARED, M.PRECISION)
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
