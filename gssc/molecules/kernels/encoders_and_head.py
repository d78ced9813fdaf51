"""Both ends of the model: the batch and its encoding; the head, its loss, and both their gradients."""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import SLOT, affine, settle, standardized, statistics
from gssc.ops.tile_kernels import EPS, product, put_matrix, put_vector, tile_at, vector


@triton.jit
def walk_moments(order, ptr, moments, graphs, S: tl.constexpr, SP: tl.constexpr, CHUNK: tl.constexpr):
    """Rows, mean and sum of squared deviations of the encodings of a batch, from those of its graphs."""
    b = tl.arange(0, CHUNK)
    s = tl.arange(0, SP)[None, :]
    rows = 0.0
    mean = tl.zeros([SP], tl.float32)
    for first in range(0, graphs, CHUNK):
        real = first + b < graphs
        graph = tl.load(order + first + b, mask=real, other=0)
        n = tl.load(ptr + graph + 1, mask=real, other=0) - tl.load(ptr + graph, mask=real, other=0)
        n = n.to(tl.float32)
        at = moments + graph[:, None] * (2 * S) + s
        mean += tl.sum(n[:, None] * tl.load(at, mask=real[:, None] & (s < S), other=0.0), 0)
        rows += tl.sum(n, 0)
    mean = mean / tl.maximum(rows, 1.0)
    squares = tl.zeros([SP], tl.float32)
    for first in range(0, graphs, CHUNK):
        real = first + b < graphs
        graph = tl.load(order + first + b, mask=real, other=0)
        n = tl.load(ptr + graph + 1, mask=real, other=0) - tl.load(ptr + graph, mask=real, other=0)
        at = moments + graph[:, None] * (2 * S) + s
        known = real[:, None] & (s < S)
        away = tl.load(at, mask=known, other=0.0) - mean[None, :]
        squares += tl.sum(tl.load(at + S, mask=known, other=0.0) + n.to(tl.float32)[:, None] * away * away, 0)
    return rows, mean, squares


@triton.jit
def walks_of(rwse, start, valid, T: tl.constexpr, S: tl.constexpr, SP: tl.constexpr):
    """Random-walk encodings of a graph [T, SP], zero outside."""
    s = tl.arange(0, SP)[None, :]
    at = rwse + (start + tl.arange(0, T))[:, None] * S + s
    return tl.load(at, mask=valid & (s < S), other=0.0)


@triton.jit
def walk_weights(at, D: tl.constexpr, C: tl.constexpr, S: tl.constexpr, SP: tl.constexpr):
    """The Linear of random-walk encodings [C, SP]: output c - D, for the channels from D on."""
    c = tl.arange(0, C)[:, None]
    s = tl.arange(0, SP)[None, :]
    return tl.load(at + (c - D) * S + s, mask=(c >= D) & (s < S), other=0.0)


@triton.jit
def short_vector(at, N: tl.constexpr, NP: tl.constexpr):
    """[NP], of which N are real."""
    i = tl.arange(0, NP)
    return tl.load(at + i, mask=i < N, other=0.0)


@triton.jit(do_not_specialize=["training"])
def encode_forward(
    at,  # [1], the number of the step
    order,  # [steps, replicas, graphs], numbers of graphs
    keys,  # [steps, replicas]
    ptr,
    bond_ptr,
    nodes,
    rwse,
    moments,
    slots,
    weights,
    running,  # of the norm of random-walk encodings
    kept,  # [replicas, 2, SP]
    x,  # [slots, T, C]
    graphs,
    training,
    params_stride,
    running_stride,
    WALK_NORM: tl.constexpr,
    WALK_LINEAR: tl.constexpr,
    COLUMNS: tl.constexpr,
    D: tl.constexpr,  # channels of the embedding; the others encode random walks
    S: tl.constexpr,
    SP: tl.constexpr,
    T: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Look up the graph of this slot, note it in ``slots``, and embed its nodes."""
    slot = tl.program_id(0)
    replica = slot // graphs
    step = tl.load(at)
    replicas = tl.num_programs(0) // graphs
    order += (step * replicas + replica) * graphs
    graph = tl.load(order + slot - replica * graphs)
    start = tl.load(ptr + graph)
    n = tl.load(ptr + graph + 1) - start
    tl.store(slots + slot * SLOT, graph)
    tl.store(slots + slot * SLOT + 1, start)
    tl.store(slots + slot * SLOT + 2, n)
    tl.store(slots + slot * SLOT + 3, tl.load(bond_ptr + graph))
    tl.store(slots + slot * SLOT + 4, tl.load(keys + step * replicas + replica))

    weights += replica * params_stride
    rows = tl.arange(0, T)
    c = tl.arange(0, C)[None, :]
    valid = (rows < n)[:, None]
    out = tl.zeros([T, C], tl.float32)
    for column in tl.static_range(COLUMNS):
        category = tl.load(nodes + (start + rows) * COLUMNS + column, mask=rows < n, other=0)
        out += tl.load(weights + category[:, None] * D + c, mask=valid & (c < D), other=0.0)
    if S > 0:
        running += replica * running_stride
        if training:
            count, mean, squares = walk_moments(order, ptr, moments, graphs, S, SP, CHUNK)
            writes = slot == replica * graphs
            mean, scale = settle(count, mean, squares, running, kept + replica * (2 * SP), writes, SP, S)
        else:
            mean = short_vector(running, S, SP)
            scale = 1.0 / tl.sqrt(short_vector(running + S, S, SP) + EPS)
        walks = standardized(walks_of(rwse, start, valid, T, S, SP), mean, scale, valid)
        walks = walks * short_vector(weights + WALK_NORM, S, SP)[None, :]
        walks += short_vector(weights + WALK_NORM + S, S, SP)[None, :]
        out += product(walks, tl.trans(walk_weights(weights + WALK_LINEAR, D, C, S, SP)), PRECISION)
        out += tl.load(weights + WALK_LINEAR + (C - D) * S + c - D, mask=c >= D, other=0.0)
    tl.store(tile_at(x, slot, T, C), out, mask=valid)


@triton.jit
def encode_backward(
    slots,
    weights,
    grads,
    kept,
    nodes,
    rwse,
    dx,  # [2, slots, T, C]
    graphs,
    params_stride,
    WALK_NORM: tl.constexpr,
    WALK_LINEAR: tl.constexpr,
    COLUMNS: tl.constexpr,
    V: tl.constexpr,  # categories of all columns
    VP: tl.constexpr,
    D: tl.constexpr,
    S: tl.constexpr,
    SP: tl.constexpr,
    T: tl.constexpr,
    C: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Gradients of the encoders' weights."""
    slot = tl.program_id(0)
    replica = slot // graphs
    weights += replica * params_stride
    grads += slot.to(tl.int64) * params_stride
    start = tl.load(slots + slot * SLOT + 1)
    n = tl.load(slots + slot * SLOT + 2).to(tl.int32)
    rows = tl.arange(0, T)
    valid = (rows < n)[:, None]
    d = tl.load(tile_at(dx, slot, T, C), mask=valid, other=0.0)
    d += tl.load(tile_at(dx, tl.num_programs(0) + slot, T, C), mask=valid, other=0.0)
    v = tl.arange(0, VP)[:, None]
    c = tl.arange(0, C)[None, :]
    members = tl.zeros([VP, T], tl.float32)
    for column in tl.static_range(COLUMNS):
        category = tl.load(nodes + (start + rows) * COLUMNS + column, mask=rows < n, other=-1)
        members += (category[None, :] == v).to(tl.float32)
    tl.store(grads + v * D + c, product(members, d, PRECISION), mask=(v < V) & (c < D))
    if S > 0:
        s = tl.arange(0, SP)
        mean = vector(kept + replica * (2 * SP), SP)
        scale = vector(kept + replica * (2 * SP) + SP, SP)
        hat = standardized(walks_of(rwse, start, valid, T, S, SP), mean, scale, valid)
        walks = hat * short_vector(weights + WALK_NORM, S, SP)[None, :]
        walks += short_vector(weights + WALK_NORM + S, S, SP)[None, :]
        weight = walk_weights(weights + WALK_LINEAR, D, C, S, SP)
        d_walks = product(d, weight, PRECISION)
        tl.store(grads + WALK_NORM + s, tl.sum(d_walks * hat, 0), mask=s < S)
        tl.store(grads + WALK_NORM + S + s, tl.sum(d_walks, 0), mask=s < S)
        channel = tl.arange(0, C)[:, None]
        found = product(tl.trans(d), walks, PRECISION)
        at = grads + WALK_LINEAR + (channel - D) * S + s[None, :]
        tl.store(at, found, mask=(channel >= D) & (s < S)[None, :])
        flat = tl.arange(0, C)
        tl.store(grads + WALK_LINEAR + (C - D) * S + flat - D, tl.sum(d, 0), mask=flat >= D)


@triton.jit
def known_targets(targets, slots, graphs, OUT: tl.constexpr, OP: tl.constexpr, CHUNK: tl.constexpr):
    """How many targets of a replica's batch are known, at least a tiny bit."""
    b = tl.arange(0, CHUNK)
    o = tl.arange(0, OP)[None, :]
    count = 0.0
    for first in range(0, graphs, CHUNK):
        real = first + b < graphs
        graph = tl.load(slots + (first + b) * SLOT, mask=real, other=0)
        target = tl.load(targets + graph[:, None] * OUT + o, mask=real[:, None] & (o < OUT), other=float("nan"))
        count += tl.sum(tl.sum((target == target).to(tl.float32), 1), 0)
    return tl.maximum(count, 1e-30)


@triton.jit(do_not_specialize=["training"])
def head_kernel(
    slots,
    weights,
    grads,
    norm,  # of the last layer, with running statistics, kept ones and partial moments as in `mix_forward`
    running,
    kept,
    parts,
    y,
    targets,
    raw,  # [replicas, rows, OUT], outputs by number of graph; written where not training
    losses,  # [slots], written in training, as are the next two
    dx,
    dx_parts,
    graphs,
    raw_rows,
    training,
    params_stride,
    running_stride,
    HEAD_1: tl.constexpr,
    HEAD_2: tl.constexpr,
    HEAD_3: tl.constexpr,
    MEAN: tl.constexpr,
    SQUARED: tl.constexpr,
    OUT: tl.constexpr,
    OP: tl.constexpr,
    T: tl.constexpr,
    C: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Norm, pool, MLP C → C/2 → C/4 → OUT and, in training, the loss and all gradients back to the layers' output."""
    slot = tl.program_id(0)
    replica = slot // graphs
    first = replica * graphs
    weights += replica * params_stride
    graph = tl.load(slots + slot * SLOT)
    n = tl.load(slots + slot * SLOT + 2).to(tl.int32)
    valid = (tl.arange(0, T) < n)[:, None]
    H: tl.constexpr = C // 2
    Q: tl.constexpr = C // 4
    x = tl.load(tile_at(y, slot, T, C), mask=valid, other=0.0)
    mean, scale = statistics(
        parts + first * (2 * C),
        slots + first * SLOT,
        graphs,
        running + replica * running_stride,
        kept + replica * (2 * C),
        training,
        slot == first,
        C,
        CHUNK,
    )
    hat = standardized(x, mean, scale, valid)
    pooled = tl.sum(affine(hat, norm + replica * params_stride, valid, C), 0)
    share = 1.0
    if MEAN:
        share = 1.0 / tl.maximum(n, 1).to(tl.float32)
    pooled = pooled * share
    o = tl.arange(0, OP)
    w1 = tl.load(weights + HEAD_1 + tl.arange(0, H)[:, None] * C + tl.arange(0, C)[None, :])
    w2 = tl.load(weights + HEAD_2 + tl.arange(0, Q)[:, None] * H + tl.arange(0, H)[None, :])
    w3 = tl.load(weights + HEAD_3 + o[:, None] * Q + tl.arange(0, Q)[None, :], mask=(o < OUT)[:, None], other=0.0)
    wide = tl.maximum(tl.sum(w1 * pooled[None, :], 1) + vector(weights + HEAD_1 + H * C, H), 0.0)
    narrow = tl.maximum(tl.sum(w2 * wide[None, :], 1) + vector(weights + HEAD_2 + Q * H, Q), 0.0)
    out = tl.sum(w3 * narrow[None, :], 1) + tl.load(weights + HEAD_3 + OUT * Q + o, mask=o < OUT, other=0.0)
    if training:
        count = known_targets(targets, slots + first * SLOT, graphs, OUT, OP, CHUNK)
        target = tl.load(targets + graph * OUT + o, mask=o < OUT, other=float("nan"))
        known = target == target
        error = tl.where(known, out - target, 0.0)
        if SQUARED:
            loss = error * error
            d_out = 2.0 * error
        else:
            loss = tl.abs(error)
            d_out = tl.where(error > 0.0, 1.0, 0.0) - tl.where(error < 0.0, 1.0, 0.0)
        tl.store(losses + slot, tl.sum(loss, 0) / count)
        d_out = d_out / count
        grads += slot.to(tl.int64) * params_stride
        tl.store(
            grads + HEAD_3 + o[:, None] * Q + tl.arange(0, Q)[None, :],
            d_out[:, None] * narrow[None, :],
            mask=(o < OUT)[:, None],
        )
        tl.store(grads + HEAD_3 + OUT * Q + o, d_out, mask=o < OUT)
        d_narrow = tl.where(narrow > 0.0, tl.sum(w3 * d_out[:, None], 0), 0.0)
        put_matrix(grads + HEAD_2, d_narrow[:, None] * wide[None, :], Q, H)
        put_vector(grads + HEAD_2 + Q * H, d_narrow, Q)
        d_wide = tl.where(wide > 0.0, tl.sum(w2 * d_narrow[:, None], 0), 0.0)
        put_matrix(grads + HEAD_1, d_wide[:, None] * pooled[None, :], H, C)
        put_vector(grads + HEAD_1 + H * C, d_wide, H)
        d_pooled = tl.sum(w1 * d_wide[:, None], 0) * share
        total = tl.num_programs(0)
        d = tl.where(valid, d_pooled[None, :], 0.0)
        tl.store(tile_at(dx, slot, T, C), d, mask=valid)
        tl.store(tile_at(dx, total + slot, T, C), tl.zeros([T, C], tl.float32), mask=valid)
        put_vector(dx_parts + slot * (2 * C), tl.sum(d, 0), C)
        put_vector(dx_parts + slot * (2 * C) + C, tl.sum(d * hat, 0), C)
        put_vector(dx_parts + (total + slot) * (2 * C), tl.zeros([C], tl.float32), C)
        put_vector(dx_parts + (total + slot) * (2 * C) + C, tl.zeros([C], tl.float32), C)
    else:
        tl.store(raw + (replica * raw_rows + graph) * OUT + o, out, mask=o < OUT)
