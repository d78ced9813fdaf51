"""A layer forward, in two kernels that are cut at its BatchNorms: `mix_forward` and `ffn_forward`."""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import SLOT, affine, dropped, put_moments, standardized, statistics
from gssc.ops.tile_kernels import linear, product, tile_at, vector

LOCAL = tl.constexpr(0)
GLOBAL = tl.constexpr(1)
HIDDEN = tl.constexpr(2)
OUTPUT = tl.constexpr(3)


@triton.jit
def layer_input(y, norm, mean, scale, normed, valid, C: tl.constexpr):
    """What a layer is given, and the same before weight and bias of the norm that ends the layer before."""
    hat = y
    x = y
    if normed:
        hat = standardized(y, mean, scale, valid)
        x = affine(hat, norm, valid, C)
    return x, hat


@triton.jit
def bond_matrix(bonds, first, n, T: tl.constexpr):
    """[T, T]: row i, column j is 0, or 1 + the type of the edge from j to i."""
    i = tl.arange(0, T)[:, None]
    j = tl.arange(0, T)[None, :]
    return tl.load(bonds + first + i * n + j, mask=(i < n) & (j < n), other=0)


@triton.jit
def edge_vector(edges, kind, C: tl.constexpr, EDGES: tl.constexpr):
    """Embedding of a bond type; zero where the model has none."""
    if EDGES:
        e = vector(edges + kind * C, C)
    else:
        e = tl.zeros([C], tl.float32)
    return e[None, :]


@triton.jit
def eigenvectors(vectors, start, valid, T: tl.constexpr, K: tl.constexpr, KP: tl.constexpr):
    """P [T, KP], zero outside."""
    k = tl.arange(0, KP)[None, :]
    at = vectors + (start + tl.arange(0, T))[:, None] * K + k
    return tl.load(at, mask=valid & (k < K), other=0.0)


@triton.jit
def gains_of(gains, slot, K: tl.constexpr, KP: tl.constexpr, C: tl.constexpr, SHARED: tl.constexpr):
    """A [KP, C], or [KP, 1] where it is shared by all channels."""
    k = tl.arange(0, KP)[:, None]
    if SHARED:
        found = tl.load(gains + slot * K + k, mask=k < K, other=0.0)
    else:
        found = tl.load(gains + slot * (K * C) + k * C + tl.arange(0, C)[None, :], mask=k < K, other=0.0)
    return found


@triton.jit
def own_scale(p, gains, SHARED: tl.constexpr, PRECISION: tl.constexpr):
    """(P⊙P) A_s: [T, C], or [T, 1] where gains are shared."""
    if SHARED:
        scale = tl.sum(p * p * tl.trans(gains), 1)[:, None]
    else:
        scale = product(p * p, gains, PRECISION)
    return scale


@triton.jit
def degree_factor(weights, log_degree, start, rows, n, DEGREE: tl.constexpr, C: tl.constexpr):
    """A + b log(1 + degree) [T, C], and the logarithm [T, 1]."""
    logs = tl.load(log_degree + start + rows, mask=rows < n, other=0.0)[:, None]
    return vector(weights + DEGREE, C)[None, :] + vector(weights + DEGREE + C, C)[None, :] * logs, logs


@triton.jit(do_not_specialize=["salt", "normed", "training"])
def mix_forward(
    slots,
    weights,  # of this layer
    edges,  # embeddings of bond types
    norm,  # of the layer before: its weights, running statistics, partial moments, and what backward will need
    running,
    kept,
    parts,
    bonds,
    vectors,
    log_degree,
    gains,
    self_gains,
    y,  # [slots, T, C], what the layer before ended in
    messages,  # [slots, T, C], kept for backward
    out,  # [2, slots, T, C]: local, global
    out_parts,  # [2, slots, 2, C], their moments
    graphs,
    salt,
    normed,
    training,
    p_local,
    p_global,
    params_stride,
    running_stride,
    LOCAL_1: tl.constexpr,
    LOCAL_2: tl.constexpr,
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
    """Both branches up to their norms, side by side: program (slot, 0) is local, (slot, 1) is global.

    local: x + drop(MLP(x + Σ_t A_t relu(x + e_t)));  global: x + drop(P((A ⊙ PᵀX'W_oᵀ)W_outᵀ) + (P⊙P A_s) ⊙ X'W_sᵀ).
    """
    slot = tl.program_id(0)
    replica = slot // graphs
    weights += replica * params_stride
    start = tl.load(slots + slot * SLOT + 1)
    n = tl.load(slots + slot * SLOT + 2).to(tl.int32)
    key = tl.load(slots + slot * SLOT + 4).to(tl.uint32)
    rows = tl.arange(0, T)
    valid = (rows < n)[:, None]
    x = tl.load(tile_at(y, slot, T, C), mask=valid, other=0.0)
    if normed:
        first = replica * graphs
        writes = (slot == first) & (tl.program_id(1) == 0)
        mean, scale = statistics(
            parts + first * (2 * C),
            slots + first * SLOT,
            graphs,
            running + replica * running_stride,
            kept + replica * (2 * C),
            training,
            writes,
            C,
            CHUNK,
        )
        x = affine(standardized(x, mean, scale, valid), norm + replica * params_stride, valid, C)
    branch = tl.program_id(1)
    if branch == 0:
        bond = bond_matrix(bonds, tl.load(slots + slot * SLOT + 3), n, T)
        gathered = x
        for kind in tl.static_range(BONDS):
            e = edge_vector(edges + replica * params_stride, kind, C, EDGES)
            gathered += product((bond == kind + 1).to(tl.float32), tl.maximum(x + e, 0.0), PRECISION)
        tl.store(tile_at(messages, slot, T, C), gathered, mask=valid)
        hidden = linear(gathered, weights + LOCAL_1, C, C, PRECISION) + vector(weights + LOCAL_1 + C * C, C)[None, :]
        hidden = tl.maximum(hidden, 0.0)
        far = linear(hidden, weights + LOCAL_2, C, C, PRECISION) + vector(weights + LOCAL_2 + C * C, C)[None, :]
        far = dropped(far, p_local, key, salt + LOCAL, slot - replica * graphs, T, C)
    else:
        scaled = x
        if DEGREE >= 0:
            factor, _ = degree_factor(weights, log_degree, start, rows, n, DEGREE, C)
            scaled = x * factor
        p = eigenvectors(vectors, start, valid, T, K, KP)
        state = product(tl.trans(p), scaled, PRECISION)
        state = gains_of(gains, slot, K, KP, C, SHARED) * linear(state, weights + LIN_O, C, C, PRECISION)
        if LIN_OUT >= 0:
            state = linear(state, weights + LIN_OUT, C, C, PRECISION)
        far = product(p, state, PRECISION)
        if LIN_OUT >= 0:
            far += vector(weights + LIN_OUT + C * C, C)[None, :]
        if LIN_S >= 0:
            scale_s = own_scale(p, gains_of(self_gains, slot, K, KP, C, SHARED), SHARED, PRECISION)
            far += scale_s * linear(scaled, weights + LIN_S, C, C, PRECISION)
        far = dropped(far, p_global, key, salt + GLOBAL, slot - replica * graphs, T, C)
    result = tl.where(valid, x + far, 0.0)
    place = branch * tl.num_programs(0) + slot
    tl.store(tile_at(out, place, T, C), result, mask=valid)
    put_moments(out_parts + place * (2 * C), result, valid, n, C)


@triton.jit
def ffn_input(a, b, norm_local, norm_global, stats_a, stats_b, valid, C: tl.constexpr):
    """H = norm(a) + norm(b), and both before weight and bias."""
    a_hat = standardized(a, vector(stats_a, C), vector(stats_a + C, C), valid)
    b_hat = standardized(b, vector(stats_b, C), vector(stats_b + C, C), valid)
    return affine(a_hat, norm_local, valid, C) + affine(b_hat, norm_global, valid, C), a_hat, b_hat


@triton.jit(do_not_specialize=["salt", "training"])
def ffn_forward(
    slots,
    weights,
    running,  # of norm_local; that of norm_global follows
    kept,  # [2, replicas, 2, C]
    mixed,  # [2, slots, T, C]
    parts,  # [2, slots, 2, C]
    y,
    y_parts,
    graphs,
    salt,
    training,
    p,
    params_stride,
    running_stride,
    NORM_LOCAL: tl.constexpr,
    NORM_GLOBAL: tl.constexpr,
    FFN_1: tl.constexpr,
    FFN_2: tl.constexpr,
    T: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Y = h + drop(W_2 drop(relu(W_1 h))) with h = norm(a) + norm(b), up to the norm that ends the layer."""
    slot = tl.program_id(0)
    replica = slot // graphs
    first = replica * graphs
    weights += replica * params_stride
    running += replica * running_stride
    n = tl.load(slots + slot * SLOT + 2).to(tl.int32)
    key = tl.load(slots + slot * SLOT + 4).to(tl.uint32)
    valid = (tl.arange(0, T) < n)[:, None]
    writes = slot == first
    total = tl.num_programs(0)
    a_mean, a_scale = statistics(
        parts + first * (2 * C),
        slots + first * SLOT,
        graphs,
        running,
        kept + replica * (2 * C),
        training,
        writes,
        C,
        CHUNK,
    )
    b_mean, b_scale = statistics(
        parts + (total + first) * (2 * C),
        slots + first * SLOT,
        graphs,
        running + 2 * C,
        kept + (total // graphs + replica) * (2 * C),
        training,
        writes,
        C,
        CHUNK,
    )
    a = tl.load(tile_at(mixed, slot, T, C), mask=valid, other=0.0)
    b = tl.load(tile_at(mixed, total + slot, T, C), mask=valid, other=0.0)
    h = affine(standardized(a, a_mean, a_scale, valid), weights + NORM_LOCAL, valid, C)
    h += affine(standardized(b, b_mean, b_scale, valid), weights + NORM_GLOBAL, valid, C)
    hidden = linear(h, weights + FFN_1, C, 2 * C, PRECISION) + vector(weights + FFN_1 + 2 * C * C, 2 * C)[None, :]
    hidden = dropped(tl.maximum(hidden, 0.0), p, key, salt + HIDDEN, slot - first, T, 2 * C)
    out = linear(hidden, weights + FFN_2, 2 * C, C, PRECISION) + vector(weights + FFN_2 + 2 * C * C, C)[None, :]
    out = dropped(out, p, key, salt + OUTPUT, slot - first, T, C)
    result = tl.where(valid, h + out, 0.0)
    tl.store(tile_at(y, slot, T, C), result, mask=valid)
    put_moments(y_parts + slot * (2 * C), result, valid, n, C)
