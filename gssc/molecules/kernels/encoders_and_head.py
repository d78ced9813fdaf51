"""Both ends of the model: the batch and its encoding; the head, its loss, and both their gradients."""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import (
    SLOT,
    graph_in,
    mean_and_scale,
    normalized,
    rows_of,
    standardized,
    standardized_again,
    this_slot,
    tile_of,
)
from gssc.ops.tile_kernels import matrix, product, put_matrix, put_vector, tile_at, vector


@triton.jit
def scaled_walks(hat, weights, M: tl.constexpr):
    """Weight and bias of the norm of random walks."""
    at = weights + M.WALK_NORM
    return hat * vector(at, M.SP, M.S)[None, :] + vector(at + M.S, M.SP, M.S)[None, :]


@triton.jit
def walk_weights(weights, M: tl.constexpr):
    """The Linear of random-walk encodings [C, SP]: output c - D, for the channels from D on."""
    c = tl.arange(0, M.C)[:, None]
    s = tl.arange(0, M.SP)[None, :]
    return tl.load(weights + M.WALK_LINEAR + (c - M.D) * M.S + s, mask=(c >= M.D) & (s < M.S), other=0.0)


@triton.jit(do_not_specialize=["training"])
def encode_forward(batch, tables, data, norm, x, training, M: tl.constexpr):
    """Look up the graph of this slot, note it in ``slots``, and embed its nodes into x [slots, T, C].

    The norm is that of random walks; its moments lie by the number of the graph.
    """
    COLUMNS: tl.constexpr = M.COLUMNS
    T: tl.constexpr = M.T
    C: tl.constexpr = M.C
    slot, replica, first = this_slot(batch)
    step = tl.load(tables.at)
    replicas = tl.num_programs(0) // batch.graphs
    order = tables.order + (step * replicas + replica) * batch.graphs
    graph = tl.load(order + slot - first)
    start = tl.load(data.ptr + graph)
    n = tl.load(data.ptr + graph + 1) - start
    note = batch.slots + slot * SLOT
    tl.store(note, graph)
    tl.store(note + 1, start)
    tl.store(note + 2, n)
    tl.store(note + 3, tl.load(data.bond_ptr + graph))
    tl.store(note + 4, tl.load(tables.keys + step * replicas + replica))

    weights = batch.params + replica * batch.params_stride
    rows = tl.arange(0, T)
    c = tl.arange(0, C)[None, :]
    valid = (rows < n)[:, None]
    out = tl.zeros([T, C], tl.float32)
    for column in tl.static_range(COLUMNS):
        category = tl.load(data.nodes + (start + rows) * COLUMNS + column, mask=rows < n, other=0)
        out += tl.load(weights + M.NODES + category[:, None] * M.D + c, mask=valid & (c < M.D), other=0.0)
    if M.S > 0:
        walks = rows_of(data.rwse, start, valid, M.S, M.SP, T)
        mean, scale = mean_and_scale(
            norm, norm.parts, order, data.ptr, batch, replica, training, slot == first, M.S, M.SP, M.CHUNK
        )
        walks = scaled_walks(standardized(walks, mean, scale, valid), weights, M)
        out += product(walks, tl.trans(walk_weights(weights, M)), M.PRECISION)
        out += tl.load(weights + M.WALK_LINEAR + (C - M.D) * M.S + c - M.D, mask=c >= M.D, other=0.0)
    tl.store(tile_at(x, slot, T, C), out, mask=valid)


@triton.jit
def encode_backward(batch, data, norm, dx, M: tl.constexpr):
    """Gradients of the encoders' weights, from that of what they give, dx [2, slots, T, C]."""
    COLUMNS: tl.constexpr = M.COLUMNS
    T: tl.constexpr = M.T
    C: tl.constexpr = M.C
    VP: tl.constexpr = M.VP
    slot, replica, _ = this_slot(batch)
    weights = batch.params + replica * batch.params_stride
    grads = batch.grads + slot.to(tl.int64) * batch.params_stride
    start, n, valid, _ = graph_in(batch, slot, T)
    rows = tl.arange(0, T)
    d = tile_of(dx, slot, valid, M)
    d += tile_of(dx, tl.num_programs(0) + slot, valid, M)
    v = tl.arange(0, VP)[:, None]
    c = tl.arange(0, C)
    members = tl.zeros([VP, T], tl.float32)
    for column in tl.static_range(COLUMNS):
        category = tl.load(data.nodes + (start + rows) * COLUMNS + column, mask=rows < n, other=-1)
        members += (category[None, :] == v).to(tl.float32)
    inside = (v < M.V) & (c < M.D)[None, :]
    tl.store(grads + M.NODES + v * M.D + c[None, :], product(members, d, M.PRECISION), mask=inside)
    if M.S > 0:
        s = tl.arange(0, M.SP)
        walks = rows_of(data.rwse, start, valid, M.S, M.SP, T)
        hat, _ = standardized_again(walks, norm.kept + replica * (2 * M.SP), valid, M.SP)
        walks = scaled_walks(hat, weights, M)
        d_walks = product(d, walk_weights(weights, M), M.PRECISION)
        put_vector(grads + M.WALK_NORM, tl.sum(d_walks * hat, 0), M.SP, False, M.S)
        put_vector(grads + M.WALK_NORM + M.S, tl.sum(d_walks, 0), M.SP, False, M.S)
        at = grads + M.WALK_LINEAR + (c[:, None] - M.D) * M.S + s[None, :]
        inside = (c >= M.D)[:, None] & (s < M.S)[None, :]
        tl.store(at, product(tl.trans(d), walks, M.PRECISION), mask=inside)
        tl.store(grads + M.WALK_LINEAR + (C - M.D) * M.S + c - M.D, tl.sum(d, 0), mask=c >= M.D)


@triton.jit
def known_targets(data, slots, graphs, M: tl.constexpr):
    """How many targets of a replica's batch are known, at least a tiny bit."""
    b = tl.arange(0, M.CHUNK)
    o = tl.arange(0, M.OP)[None, :]
    count = 0.0
    for first in range(0, graphs, M.CHUNK):
        real = first + b < graphs
        graph = tl.load(slots + (first + b) * SLOT, mask=real, other=0)
        at = data.targets + graph[:, None] * M.OUT + o
        target = tl.load(at, mask=real[:, None] & (o < M.OUT), other=float("nan"))
        count += tl.sum(tl.sum((target == target).to(tl.float32), 1), 0)
    return tl.maximum(count, 1e-30)


@triton.jit(do_not_specialize=["training"])
def head_kernel(batch, data, layer, back, losses, raw, raw_rows, training, M: tl.constexpr):
    """Norm, pool, MLP C → C/2 → C/4 → OUT and, in training, the loss and all gradients back to the layers' output.

    The layer is the last. In training losses [slots] are written, else outputs raw [replicas, rows, OUT], by number of
    graph.
    """
    slot, replica, first = this_slot(batch)
    weights = batch.params + replica * batch.params_stride
    graph = tl.load(batch.slots + slot * SLOT)
    _, n, valid, _ = graph_in(batch, slot, M.T)
    H: tl.constexpr = M.C // 2
    Q: tl.constexpr = M.C // 4
    x = tile_of(layer.y, slot, valid, M)
    x, hat = normalized(x, layer.after, batch, replica, training, slot == first, valid, M)
    pooled = tl.sum(x, 0)
    share = 1.0
    if M.MEAN:
        share = 1.0 / tl.maximum(n, 1).to(tl.float32)
    pooled = pooled * share
    o = tl.arange(0, M.OP)
    last = o[:, None] * Q + tl.arange(0, Q)[None, :]
    w1 = matrix(weights + M.HEAD_1, H, M.C)
    w2 = matrix(weights + M.HEAD_2, Q, H)
    w3 = tl.load(weights + M.HEAD_3 + last, mask=(o < M.OUT)[:, None], other=0.0)
    wide = tl.maximum(tl.sum(w1 * pooled[None, :], 1) + vector(weights + M.HEAD_1 + H * M.C, H), 0.0)
    narrow = tl.maximum(tl.sum(w2 * wide[None, :], 1) + vector(weights + M.HEAD_2 + Q * H, Q), 0.0)
    out = tl.sum(w3 * narrow[None, :], 1) + vector(weights + M.HEAD_3 + M.OUT * Q, M.OP, M.OUT)
    if training:
        count = known_targets(data, batch.slots + first * SLOT, batch.graphs, M)
        target = tl.load(data.targets + graph * M.OUT + o, mask=o < M.OUT, other=float("nan"))
        error = tl.where(target == target, out - target, 0.0)
        if M.SQUARED:
            loss = error * error
            d_out = 2.0 * error
        else:
            loss = tl.abs(error)
            d_out = tl.where(error > 0.0, 1.0, 0.0) - tl.where(error < 0.0, 1.0, 0.0)
        tl.store(losses + slot, tl.sum(loss, 0) / count)
        d_out = d_out / count
        grads = batch.grads + slot.to(tl.int64) * batch.params_stride
        tl.store(grads + M.HEAD_3 + last, d_out[:, None] * narrow[None, :], mask=(o < M.OUT)[:, None])
        put_vector(grads + M.HEAD_3 + M.OUT * Q, d_out, M.OP, False, M.OUT)
        d_narrow = tl.where(narrow > 0.0, tl.sum(w3 * d_out[:, None], 0), 0.0)
        put_matrix(grads + M.HEAD_2, d_narrow[:, None] * wide[None, :], Q, H)
        put_vector(grads + M.HEAD_2 + Q * H, d_narrow, Q)
        d_wide = tl.where(wide > 0.0, tl.sum(w2 * d_narrow[:, None], 0), 0.0)
        put_matrix(grads + M.HEAD_1, d_wide[:, None] * pooled[None, :], H, M.C)
        put_vector(grads + M.HEAD_1 + H * M.C, d_wide, H)
        d_pooled = tl.sum(w1 * d_wide[:, None], 0) * share
        d = tl.where(valid, d_pooled[None, :], 0.0)
        # All in the first of the two parts.
        behind = tl.num_programs(0) + slot
        tl.store(tile_at(back.dx, slot, M.T, M.C), d, mask=valid)
        tl.store(tile_at(back.dx, behind, M.T, M.C), tl.zeros_like(d), mask=valid)
        put_vector(back.dx_parts + slot * (2 * M.C), tl.sum(d, 0), M.C)
        put_vector(back.dx_parts + slot * (2 * M.C) + M.C, tl.sum(d * hat, 0), M.C)
        put_vector(back.dx_parts + behind * (2 * M.C), tl.zeros_like(pooled), M.C)
        put_vector(back.dx_parts + behind * (2 * M.C) + M.C, tl.zeros_like(pooled), M.C)
    else:
        put_vector(raw + (replica * raw_rows + graph) * M.OUT, out, M.OP, False, M.OUT)
