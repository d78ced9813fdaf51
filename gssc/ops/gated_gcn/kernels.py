"""Triton kernels of GatedGCN. Imported only where they run: see ``fused.py``, which explains the passes.

ℓ = t_i + s_j (+ Z, the projected edge) is computed anew wherever it is needed; σ = sigmoid(ℓ).
"""

import triton
import triton.language as tl

from gssc.ops.edges.kernels import channels, edge_block, gather, put_row, row, scatter


@triton.jit
def vector(base, c, C: tl.constexpr):
    """A vector [C] as float32."""
    return tl.load(base + c, mask=c < C, other=0.0).to(tl.float32)


@triton.jit
def mixed(x):
    """A bijection of 32 bits that scatters them."""
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0x735A2D97
    return x ^ (x >> 15)


@triton.jit
def keep(seed, rows, c, dropout, C: tl.constexpr):
    """Which elements dropout leaves, [rows, channels]: a hash of their place and of a seed on the device."""
    low = tl.load(seed).to(tl.uint32, bitcast=True)
    high = tl.load(seed + 1).to(tl.uint32, bitcast=True)
    by_row = mixed(rows.to(tl.int32).to(tl.uint32, bitcast=True) ^ low)
    bits = mixed((by_row[:, None] + c.to(tl.uint32, bitcast=True)[None, :] * 0x9E3779B9) ^ high)
    return (bits >> 8).to(tl.float32) * (1.0 / 16777216.0) >= dropout


@triton.jit
def update_gradient(
    logit, rows, valid, c, grad, mask, used, scale, shift, seed, dropout,
    C: tl.constexpr, BLOCK_C: tl.constexpr, NORM: tl.constexpr, HAS_MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """ℓ normalised, and the gradient of γℓ̂ + β (of ℓ itself without a norm): that of e' through dropout and ReLU."""
    hat = logit
    hidden = logit
    if NORM:
        hat = (logit - vector(used, c, C)[None, :]) * vector(used + C, c, C)[None, :]
        hidden = hat * vector(scale, c, C)[None, :] + vector(shift, c, C)[None, :]
    passes = hidden > 0.0
    if HAS_MASK:
        passes = passes & (tl.load(mask + rows, mask=valid, other=0) != 0)[:, None]
    change = tl.where(passes, gather(grad, rows, valid, c, C, BLOCK_C), 0.0)
    if DROPOUT:
        change = tl.where(keep(seed, rows, c, dropout, C), change / (1.0 - dropout), 0.0)
    return hat, change


@triton.jit
def logit_gradient(
    logit, gate_change, rows, valid, c, grad, mask, used, scale, shift, seed, sums, count, dropout,
    C: tl.constexpr, BLOCK_C: tl.constexpr, HAS_GRAD: tl.constexpr, NORM: tl.constexpr, TRAINING: tl.constexpr,
    HAS_MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """∂ℓ = σ(1-σ) ⊙ ∂σ + γ/√v ⊙ (g - [statistics are those of the batch] (Σg + ℓ̂ Σgℓ̂)/n)."""
    gate = tl.sigmoid(logit)
    change = gate * (1.0 - gate) * gate_change
    if HAS_GRAD:
        hat, g = update_gradient(
            logit, rows, valid, c, grad, mask, used, scale, shift, seed, dropout, C, BLOCK_C, NORM, HAS_MASK, DROPOUT
        )
        if NORM:
            if TRAINING:
                n = tl.load(count)
                share = tl.where(n >= 2.0, 1.0 / tl.maximum(n, 1.0), 0.0)
                common = (vector(sums, c, C)[None, :] + hat * vector(sums + C, c, C)[None, :]) * share
                if HAS_MASK:
                    real = tl.load(mask + rows, mask=valid, other=0) != 0
                    common = tl.where(real[:, None], common, 0.0)
                g -= common
            g *= (vector(used + C, c, C) * vector(scale, c, C))[None, :]
        change += g
    return tl.where(valid[:, None], change, 0.0)


@triton.jit(do_not_specialize=["nodes", "share", "eps"])
def forward_nodes(
    target, source, neighbor, projected, order, others, ptr, mask, out, counts, means, squares, eps, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
    HAS_EDGES: tl.constexpr, HAS_MASK: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Σ_j σ ⊙ b_j / (Σ_j σ + ε) for a share of the nodes, and the moments of the logits of its edges."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    number = tl.full([], 0.0, tl.float32)
    mean = tl.zeros([BLOCK_C], dtype=tl.float32)
    square = tl.zeros([BLOCK_C], dtype=tl.float32)
    for node in range(first, tl.minimum(first + share, nodes)):
        own = row(target, node, c, C, BLOCK_C)
        total = tl.zeros([BLOCK_C], dtype=tl.float32)
        gates = tl.zeros([BLOCK_C], dtype=tl.float32)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            edge = tl.load(order + position, mask=valid, other=0)
            other = tl.load(others + position, mask=valid, other=0)
            logit = gather(source, other, valid, c, C, BLOCK_C) + own[None, :]
            if HAS_EDGES:
                logit += gather(projected, edge, valid, c, C, BLOCK_C)
            gate = tl.where(valid[:, None], tl.sigmoid(logit), 0.0)
            total += tl.sum(gate * gather(neighbor, other, valid, c, C, BLOCK_C), 0)
            gates += tl.sum(gate, 0)
            if MOMENTS:
                # Moments of the block, merged into those so far: a large mean costs no digits.
                real = valid
                if HAS_MASK:
                    real = valid & (tl.load(mask + edge, mask=valid, other=0) != 0)
                more = tl.sum(real.to(tl.float32), 0)
                center = tl.sum(tl.where(real[:, None], logit, 0.0), 0) / tl.maximum(more, 1.0)
                away = tl.where(real[:, None], logit - center[None, :], 0.0)
                step = center - mean
                part = more / tl.maximum(number + more, 1.0)
                square += tl.sum(away * away, 0) + step * step * number * part
                mean += step * part
                number += more
        put_row(out, node, c, total / (gates + eps), C, BLOCK_C)
    if MOMENTS:
        program = tl.program_id(0)
        tl.store(counts + program, number, mask=tl.program_id(1) == 0)
        put_row(means, program, c, mean, C, BLOCK_C)
        put_row(squares, program, c, square, C, BLOCK_C)


@triton.jit(do_not_specialize=["programs", "eps"])
def merge_moments(
    counts, means, squares, running_mean, running_variance, count, mean, square, used, eps, programs,
    C: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Moments of all edges, and the mean and 1/√(variance + ε) to normalise by."""
    c = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    number = tl.zeros([ROWS], dtype=tl.float32)
    total = tl.zeros([ROWS, BLOCK_C], dtype=tl.float32)
    for first in range(0, programs, ROWS):
        rows = first + tl.arange(0, ROWS)
        valid = rows < programs
        n = tl.load(counts + rows, mask=valid, other=0.0)
        number += n
        total += n[:, None] * gather(means, rows, valid, c, C, BLOCK_C)
    n_all = tl.sum(number, 0)
    center = tl.sum(total, 0) / tl.maximum(n_all, 1.0)
    total = tl.zeros([ROWS, BLOCK_C], dtype=tl.float32)
    for first in range(0, programs, ROWS):
        rows = first + tl.arange(0, ROWS)
        valid = rows < programs
        n = tl.load(counts + rows, mask=valid, other=0.0)
        away = gather(means, rows, valid, c, C, BLOCK_C) - center[None, :]
        total += gather(squares, rows, valid, c, C, BLOCK_C) + n[:, None] * away * away
    both = tl.sum(total, 0)
    tl.store(count, n_all, mask=tl.program_id(0) == 0)
    tl.store(mean + c, center, mask=c < C)
    tl.store(square + c, both, mask=c < C)
    enough = n_all >= 2.0
    variance = tl.where(enough, both / tl.maximum(n_all, 1.0), vector(running_variance, c, C))
    tl.store(used + c, tl.where(enough, center, vector(running_mean, c, C)), mask=c < C)
    tl.store(used + C + c, 1.0 / tl.sqrt(variance + eps), mask=c < C)


@triton.jit(do_not_specialize=["edges", "dropout"])
def forward_edges(
    target, source, projected, attr, index, mask, used, scale, shift, seed, out, dropout, edges,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
    HAS_EDGES: tl.constexpr, RESIDUAL: tl.constexpr, NORM: tl.constexpr, HAS_MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """E' = e + drop(ReLU(γℓ̂ + β)) for a block of edges. ``out`` may be ``projected``."""
    c = channels(BLOCK_C)
    rows, valid = edge_block(edges, BLOCK_E)
    i = tl.load(index + edges + rows, mask=valid, other=0)
    j = tl.load(index + rows, mask=valid, other=0)
    hidden = gather(target, i, valid, c, C, BLOCK_C) + gather(source, j, valid, c, C, BLOCK_C)
    if HAS_EDGES:
        hidden += gather(projected, rows, valid, c, C, BLOCK_C)
    if NORM:
        hat = (hidden - vector(used, c, C)[None, :]) * vector(used + C, c, C)[None, :]
        hidden = hat * vector(scale, c, C)[None, :] + vector(shift, c, C)[None, :]
    update = tl.maximum(hidden, 0.0)
    if HAS_MASK:
        update = tl.where((tl.load(mask + rows, mask=valid, other=0) != 0)[:, None], update, 0.0)
    if DROPOUT:
        update = tl.where(keep(seed, rows, c, dropout, C), update / (1.0 - dropout), 0.0)
    if RESIDUAL:
        update += gather(attr, rows, valid, c, C, BLOCK_C)
    scatter(out, rows, valid, c, update, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "share", "eps", "dropout"])
def backward_sums(
    target, source, neighbor, projected, order, others, ptr, grad_nodes, grad, mask, used, scale, shift, seed,
    u, w, partial, eps, dropout, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, HAS_EDGES: tl.constexpr,
    HAS_GRAD: tl.constexpr, NORM: tl.constexpr, HAS_MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """u_i = ∂h_i / (Σσ + ε) and w_i = u_i ⊙ h_i for a share of the nodes; Σg and Σgℓ̂ over its edges."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    plain = tl.zeros([BLOCK_C], dtype=tl.float32)
    along = tl.zeros([BLOCK_C], dtype=tl.float32)
    for node in range(first, tl.minimum(first + share, nodes)):
        own = row(target, node, c, C, BLOCK_C)
        total = tl.zeros([BLOCK_C], dtype=tl.float32)
        gates = tl.zeros([BLOCK_C], dtype=tl.float32)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            edge = tl.load(order + position, mask=valid, other=0)
            other = tl.load(others + position, mask=valid, other=0)
            logit = gather(source, other, valid, c, C, BLOCK_C) + own[None, :]
            if HAS_EDGES:
                logit += gather(projected, edge, valid, c, C, BLOCK_C)
            gate = tl.where(valid[:, None], tl.sigmoid(logit), 0.0)
            total += tl.sum(gate * gather(neighbor, other, valid, c, C, BLOCK_C), 0)
            gates += tl.sum(gate, 0)
            if HAS_GRAD:
                if NORM:
                    hat, g = update_gradient(
                        logit, edge, valid, c, grad, mask, used, scale, shift, seed, dropout,
                        C, BLOCK_C, NORM, HAS_MASK, DROPOUT,
                    )  # fmt: skip
                    plain += tl.sum(g, 0)
                    along += tl.sum(g * hat, 0)
        change = row(grad_nodes, node, c, C, BLOCK_C) / (gates + eps)
        put_row(u, node, c, change, C, BLOCK_C)
        put_row(w, node, c, change * total / (gates + eps), C, BLOCK_C)
    if HAS_GRAD:
        if NORM:
            put_row(partial, tl.program_id(0) * 2, c, plain, C, BLOCK_C)
            put_row(partial, tl.program_id(0) * 2 + 1, c, along, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "share", "dropout"])
def backward_sources(
    target, source, neighbor, projected, order, others, ptr, u, w, grad, mask, used, scale, shift, seed, sums, count,
    d_source, d_neighbor, dropout, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, HAS_EDGES: tl.constexpr, HAS_GRAD: tl.constexpr,
    NORM: tl.constexpr, TRAINING: tl.constexpr, HAS_MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """∂s_j = Σ_i ∂ℓ_ij and ∂b_j = Σ_i σ_ij ⊙ u_i for a share of the nodes j."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    for node in range(first, tl.minimum(first + share, nodes)):
        own = row(source, node, c, C, BLOCK_C)
        value = row(neighbor, node, c, C, BLOCK_C)
        by_logit = tl.zeros([BLOCK_C], dtype=tl.float32)
        by_message = tl.zeros([BLOCK_C], dtype=tl.float32)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            edge = tl.load(order + position, mask=valid, other=0)
            other = tl.load(others + position, mask=valid, other=0)
            logit = gather(target, other, valid, c, C, BLOCK_C) + own[None, :]
            if HAS_EDGES:
                logit += gather(projected, edge, valid, c, C, BLOCK_C)
            push = gather(u, other, valid, c, C, BLOCK_C)
            gate_change = push * value[None, :] - gather(w, other, valid, c, C, BLOCK_C)
            change = logit_gradient(
                logit, gate_change, edge, valid, c, grad, mask, used, scale, shift, seed, sums, count, dropout,
                C, BLOCK_C, HAS_GRAD, NORM, TRAINING, HAS_MASK, DROPOUT,
            )  # fmt: skip
            by_logit += tl.sum(change, 0)
            by_message += tl.sum(push * tl.sigmoid(logit), 0)
        put_row(d_source, node, c, by_logit, C, BLOCK_C)
        put_row(d_neighbor, node, c, by_message, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "share", "dropout"])
def backward_targets(
    target, source, neighbor, projected, order, others, ptr, u, w, grad, mask, used, scale, shift, seed, sums, count,
    d_target, dropout, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, HAS_EDGES: tl.constexpr, HAS_GRAD: tl.constexpr,
    NORM: tl.constexpr, TRAINING: tl.constexpr, HAS_MASK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """∂t_i = Σ_j ∂ℓ_ij for a share of the nodes i; with edge features ∂ℓ is written over ``projected``."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    for node in range(first, tl.minimum(first + share, nodes)):
        own = row(target, node, c, C, BLOCK_C)
        push = row(u, node, c, C, BLOCK_C)
        pull = row(w, node, c, C, BLOCK_C)
        by_logit = tl.zeros([BLOCK_C], dtype=tl.float32)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            edge = tl.load(order + position, mask=valid, other=0)
            other = tl.load(others + position, mask=valid, other=0)
            logit = gather(source, other, valid, c, C, BLOCK_C) + own[None, :]
            if HAS_EDGES:
                logit += gather(projected, edge, valid, c, C, BLOCK_C)
            gate_change = gather(neighbor, other, valid, c, C, BLOCK_C) * push[None, :] - pull[None, :]
            change = logit_gradient(
                logit, gate_change, edge, valid, c, grad, mask, used, scale, shift, seed, sums, count, dropout,
                C, BLOCK_C, HAS_GRAD, NORM, TRAINING, HAS_MASK, DROPOUT,
            )  # fmt: skip
            if HAS_EDGES:
                scatter(projected, edge, valid, c, change, C, BLOCK_C)
            by_logit += tl.sum(change, 0)
        put_row(d_target, node, c, by_logit, C, BLOCK_C)
