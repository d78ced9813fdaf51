"""A layer forward, in two kernels that are cut at its BatchNorms: `mix_forward` and `ffn_forward`."""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import (
    SLOT,
    affine,
    dropped,
    graph_in,
    put_moments,
    standardized,
    statistics,
    this_slot,
    tile_of,
    with_bias,
)
from gssc.ops.tile_kernels import linear, product, tile_at, vector

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
def edge_vector(edges, kind, C: tl.constexpr, EDGES: tl.constexpr):
    """Embedding of a bond type; zero where the model has none."""
    if EDGES:
        e = vector(edges + kind * C, C)
    else:
        e = tl.zeros([C], tl.float32)
    return e[None, :]


@triton.jit
def eigenvectors(data, start, valid, M: tl.constexpr):
    """P [T, KP], zero outside."""
    k = tl.arange(0, M.KP)[None, :]
    at = data.vectors + (start + tl.arange(0, M.T))[:, None] * M.K + k
    return tl.load(at, mask=valid & (k < M.K), other=0.0)


@triton.jit
def gains_of(gains, place, M: tl.constexpr):
    """A [KP, C], or [KP, 1] where it is shared by all channels."""
    k = tl.arange(0, M.KP)[:, None]
    if M.SHARED:
        a = tl.load(gains + place * M.K + k, mask=k < M.K, other=0.0)
    else:
        a = tl.load(gains + place * (M.K * M.C) + k * M.C + tl.arange(0, M.C)[None, :], mask=k < M.K, other=0.0)
    return a


@triton.jit
def put_gains(gains, place, a, M: tl.constexpr):
    """Store A [KP, C], summed over channels where these share it."""
    k = tl.arange(0, M.KP)
    if M.SHARED:
        tl.store(gains + place * M.K + k, tl.sum(a, 1), mask=k < M.K)
    else:
        at = gains + place * (M.K * M.C) + k[:, None] * M.C + tl.arange(0, M.C)[None, :]
        tl.store(at, a, mask=(k < M.K)[:, None])


@triton.jit
def self_scale(p, gains, M: tl.constexpr):
    """(P⊙P) A_s: [T, C], or [T, 1] where gains are shared."""
    if M.SHARED:
        scale = tl.sum(p * p * tl.trans(gains), 1)[:, None]
    else:
        scale = product(p * p, gains, M.PRECISION)
    return scale


@triton.jit
def degree_factor(weights, data, start, n, M: tl.constexpr):
    """A + b log(1 + degree) [T, C], and the logarithm [T, 1]."""
    rows = tl.arange(0, M.T)
    logs = tl.load(data.log_degree + start + rows, mask=rows < n, other=0.0)[:, None]
    at = weights + M.DEGREE
    return vector(at, M.C)[None, :] + vector(at + M.C, M.C)[None, :] * logs, logs


@triton.jit(do_not_specialize=["salt", "normed", "training"])
def mix_forward(batch, data, layer, encoders, salt, normed, training, p_local, p_global, M: tl.constexpr):
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
        mean, scale = statistics(layer.before, batch, replica, training, writes, M)
        norm = layer.before.weight + replica * batch.params_stride
        x = affine(standardized(x, mean, scale, valid), norm, valid, M.C)
    branch = tl.program_id(1)
    if branch == 0:
        BONDS: tl.constexpr = M.BONDS
        bond = bond_matrix(data, batch, slot, n, M.T)
        gathered = x
        for kind in tl.static_range(BONDS):
            e = edge_vector(encoders.edges + replica * batch.params_stride, kind, M.C, M.EDGES)
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
        p = eigenvectors(data, start, valid, M)
        state = product(tl.trans(p), scaled, M.PRECISION)
        state = gains_of(layer.gains, slot, M) * linear(state, weights + M.LIN_O, M.C, M.C, M.PRECISION)
        if M.LIN_OUT >= 0:
            state = linear(state, weights + M.LIN_OUT, M.C, M.C, M.PRECISION)
        far = product(p, state, M.PRECISION)
        if M.LIN_OUT >= 0:
            far += vector(weights + M.LIN_OUT + M.C * M.C, M.C)[None, :]
        if M.LIN_S >= 0:
            scale_s = self_scale(p, gains_of(layer.self_gains, slot, M), M)
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
    shift = replica * batch.params_stride
    weights = layer.weights + shift
    _, n, valid, key = graph_in(batch, slot, M.T)
    a_mean, a_scale = statistics(layer.local, batch, replica, training, slot == first, M)
    b_mean, b_scale = statistics(layer.glob, batch, replica, training, slot == first, M)
    a = tile_of(layer.mixed, slot, valid, M)
    b = tile_of(layer.mixed, tl.num_programs(0) + slot, valid, M)
    h = affine(standardized(a, a_mean, a_scale, valid), layer.local.weight + shift, valid, M.C)
    h += affine(standardized(b, b_mean, b_scale, valid), layer.glob.weight + shift, valid, M.C)
    hidden = ffn_hidden(h, weights, p, key, salt, slot - first, M)
    out = with_bias(hidden, weights + M.FFN_2, 2 * M.C, M.C, M)
    out = dropped(out, p, key, salt + OUTPUT, slot - first, M.T, M.C)
    result = tl.where(valid, h + out, 0.0)
    tl.store(tile_at(layer.y, slot, M.T, M.C), result, mask=valid)
    put_moments(layer.after.parts + slot * (2 * M.C), result, valid, n, M.C)
