"""Triton kernels of GatedGCN. Imported only where they run: see ``triton.py``, which explains the passes.

ℓ = t_i + s_j (+ eWᵀ + bias) is made once in either direction; σ = sigmoid(ℓ) is computed anew wherever it is needed.

What nodes tell, t, s, n and a, stands side by side in ``told`` [N, PARTS · C], with or without a; their gradients in
``d_told`` [N, 4C]. Seen as one [PARTS · N, C], rows from PARTS · i on are those of node i. What is not there is None.
"""

import triton
import triton.language as tl

from gssc.ops.edges.kernels import channels, edge_block, gather, nothing, put_row, row, scatter
from gssc.ops.linears.kernels import block
from gssc.ops.norm.kernels.forward import combined, moments_of
from gssc.ops.norm.kernels.rows import kept

# Places in ``told``.
TARGET = tl.constexpr(0)
SOURCE = tl.constexpr(1)
NEIGHBOR = tl.constexpr(2)
OWN = tl.constexpr(3)


@triton.jit
def real_edges(mask, edge, valid):
    """Which edges of a block enter the statistics."""
    if mask is not None:
        valid = valid & (tl.load(mask + edge, mask=valid, other=0) != 0)
    return valid


@triton.jit
def update_gradient(
    logit, rows, valid, c, grad, mask, stats, scale, shift, seed, threshold, rescale,
    C: tl.constexpr, BLOCK_C: tl.constexpr, SITE: tl.constexpr,
):  # fmt: skip
    """ℓ normalised, and the gradient of γℓ̂ + β (of ℓ itself without a norm): that of e' through dropout and ReLU."""
    hat = logit
    hidden = logit
    if scale is not None:
        hat = (logit - row(stats, 0, c, C, BLOCK_C)[None, :]) * row(stats, 1, c, C, BLOCK_C)[None, :]
        hidden = hat * row(scale, 0, c, C, BLOCK_C)[None, :] + row(shift, 0, c, C, BLOCK_C)[None, :]
    passes = hidden > 0.0
    if mask is not None:
        passes = passes & real_edges(mask, rows, valid)[:, None]
    change = tl.where(passes, gather(grad, rows, valid, c, C, BLOCK_C), 0.0)
    if seed is not None:
        change = tl.where(kept(seed, SITE, rows, c, threshold), change * rescale, 0.0)
    return hat, change


@triton.jit(do_not_specialize=["edges", "share"])
def edge_logits(
    told, attr, weight, bias, index, mask, out, moments, edges, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """ℓ = eWᵀ + bias + t_i + s_j for a share of the edges, in the order they came.

    Moments [programs, 3, C] are the number of real edges of the share, the mean and Σ(ℓ - mean)².
    """
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    last = tl.minimum(first + share, edges)
    n = tl.zeros([], dtype=tl.float32)
    mean, squares = tl.zeros([BLOCK_C], dtype=tl.float32), tl.zeros([BLOCK_C], dtype=tl.float32)
    for start in range(first, last, BLOCK_E):
        rows = start + tl.arange(0, BLOCK_E)
        valid = rows < last
        i = tl.load(index + edges + rows, mask=valid, other=0)
        j = tl.load(index + rows, mask=valid, other=0)
        logit = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32)
        if attr is not None:
            for step in range(0, C, STEP):
                d = step + tl.arange(0, STEP)
                turned = tl.trans(block(weight, c, d, C, C))
                logit = tl.dot(block(attr, rows, d, last, C), turned, logit, input_precision=PRECISION)
            logit += tl.load(bias + c, mask=c < C, other=0.0).to(tl.float32)[None, :]
        logit += gather(told, i * PARTS + TARGET, valid, c, C, BLOCK_C)
        logit += gather(told, j * PARTS + SOURCE, valid, c, C, BLOCK_C)
        scatter(out, rows, valid, c, logit, C, BLOCK_C)
        if moments is not None:
            real = real_edges(mask, rows, valid)
            rounded = tl.where(real[:, None], logit.to(out.dtype.element_ty).to(tl.float32), 0.0)
            more, center, deviations = moments_of(rounded, real, tl.float32)
            n, mean, squares = combined(n, mean, squares, more, center, deviations)
    if moments is not None:
        place = tl.program_id(0) * 3
        put_row(moments, place, c, tl.zeros_like(mean) + n, C, BLOCK_C)
        put_row(moments, place + 1, c, mean, C, BLOCK_C)
        put_row(moments, place + 2, c, squares, C, BLOCK_C)


@triton.jit
def edges_of(
    at, end, order, others, logits, c, C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """The next edges of a node: which there are, their numbers, the nodes beyond, and ℓ."""
    position = at + tl.arange(0, BLOCK_E)
    valid = position < end
    edge = tl.load(order + position, mask=valid, other=0)
    other = tl.load(others + position, mask=valid, other=0)
    return valid, edge, other, gather(logits, edge, valid, c, C, BLOCK_C)


@triton.jit(do_not_specialize=["eps", "norm_eps", "nodes", "share"])
def forward_nodes(
    told, logits, order, others, ptr, out, means, running_mean, running_variance, stats, eps, norm_eps, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """a_i + Σ_j σ ⊙ b_j / (Σ_j σ + ε) and the denominator for a share of the nodes.

    One over the denominator and the fraction, not rounded, go to ``means`` [2, N, C]. Where ``stats`` are given, they
    are those of a norm at rest.
    """
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    last = tl.minimum(first + share, nodes)
    if stats is not None:
        if first == 0:
            zero = tl.zeros([BLOCK_C], dtype=tl.float32)
            put_row(stats, 0, c, row(running_mean, 0, c, C, BLOCK_C), C, BLOCK_C)
            variance = row(running_variance, 0, c, C, BLOCK_C)
            put_row(stats, 1, c, 1.0 / tl.sqrt(variance + norm_eps), C, BLOCK_C)
            for place in range(2, 5):
                put_row(stats, place, c, zero, C, BLOCK_C)
    for node in range(first, last):
        total, gates = nothing(BLOCK_E, BLOCK_C), nothing(BLOCK_E, BLOCK_C)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            valid, _, other, logit = edges_of(at, end, order, others, logits, c, C, BLOCK_E, BLOCK_C)
            gate = tl.where(valid[:, None], tl.sigmoid(logit), 0.0)
            total += gate * gather(told, other * PARTS + NEIGHBOR, valid, c, C, BLOCK_C)
            gates += gate
        inverse = 1.0 / (tl.sum(gates, 0) + eps)
        mean = tl.sum(total, 0) * inverse
        put_row(means, node, c, inverse, C, BLOCK_C)
        put_row(means, nodes + node, c, mean, C, BLOCK_C)
        put_row(out, node, c, mean + row(told, node * PARTS + OWN, c, C, BLOCK_C), C, BLOCK_C)


@triton.jit(do_not_specialize=["edges", "threshold", "rescale"])
def forward_edges(
    logits, attr, mask, stats, scale, shift, seed, out, threshold, rescale, edges,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, SITE: tl.constexpr,
):  # fmt: skip
    """E' = e + drop(ReLU(γℓ̂ + β)) for a block of edges. ``out`` may be ``logits``."""
    c = channels(BLOCK_C)
    rows, valid = edge_block(edges, BLOCK_E)
    hidden = gather(logits, rows, valid, c, C, BLOCK_C)
    if scale is not None:
        hat = (hidden - row(stats, 0, c, C, BLOCK_C)[None, :]) * row(stats, 1, c, C, BLOCK_C)[None, :]
        hidden = hat * row(scale, 0, c, C, BLOCK_C)[None, :] + row(shift, 0, c, C, BLOCK_C)[None, :]
    update = tl.maximum(hidden, 0.0)
    if mask is not None:
        update = tl.where(real_edges(mask, rows, valid)[:, None], update, 0.0)
    if seed is not None:
        update = tl.where(kept(seed, SITE, rows, c, threshold), update * rescale, 0.0)
    if attr is not None:
        update += gather(attr, rows, valid, c, C, BLOCK_C)
    scatter(out, rows, valid, c, update, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "share", "threshold", "rescale"])
def backward_sources(
    told, logits, order, others, ptr, push_of, means, grad, mask, stats, scale, shift, seed,
    d_told, hats, partial, threshold, rescale, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, PARTS: tl.constexpr, SITE: tl.constexpr,
):  # fmt: skip
    """∂b_j = Σ_i σ ⊙ u_i and, but for what statistics of the batch add, ∂s_j = Σ_i ∂ℓ_ij for a share of the nodes j.

    With a gradient of e' through a norm also Σ_i ℓ̂_ij and, behind all of these, the number of real edges per node; and
    Σg and Σgℓ̂ over all edges of the share.
    """
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    if partial is not None:
        plain, along = nothing(BLOCK_E, BLOCK_C), nothing(BLOCK_E, BLOCK_C)
        factor = (row(stats, 1, c, C, BLOCK_C) * row(scale, 0, c, C, BLOCK_C))[None, :]
    for node in range(first, tl.minimum(first + share, nodes)):
        value = row(told, node * PARTS + NEIGHBOR, c, C, BLOCK_C)
        by_logit, by_message = nothing(BLOCK_E, BLOCK_C), nothing(BLOCK_E, BLOCK_C)
        if partial is not None:
            all_hats = nothing(BLOCK_E, BLOCK_C)
            number = tl.zeros([BLOCK_E], dtype=tl.float32)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            valid, edge, other, logit = edges_of(at, end, order, others, logits, c, C, BLOCK_E, BLOCK_C)
            push = gather(push_of, other, valid, c, C, BLOCK_C)
            gate = tl.sigmoid(logit)
            by_message += push * gate
            away = value[None, :] - gather(means, nodes + other, valid, c, C, BLOCK_C)
            change = gate * (1.0 - gate) * push * away
            if grad is not None:
                hat, g = update_gradient(
                    logit, edge, valid, c, grad, mask, stats, scale, shift, seed, threshold, rescale, C, BLOCK_C, SITE
                )
                if scale is not None:
                    plain += g
                    along += g * hat
                    real = real_edges(mask, edge, valid)
                    all_hats += tl.where(real[:, None], hat, 0.0)
                    number += real.to(tl.float32)
                    g *= factor
                change += g
            by_logit += change
        put_row(d_told, node * 4 + SOURCE, c, tl.sum(by_logit, 0), C, BLOCK_C)
        put_row(d_told, node * 4 + NEIGHBOR, c, tl.sum(by_message, 0), C, BLOCK_C)
        if partial is not None:
            put_row(hats, node, c, tl.sum(all_hats, 0), C, BLOCK_C)
            at = hats + nodes * tl.full([], C, tl.int64) + node
            tl.store(at, tl.sum(number, 0), mask=tl.program_id(1) == 0)
    if partial is not None:
        put_row(partial, tl.program_id(0) * 2, c, tl.sum(plain, 0), C, BLOCK_C)
        put_row(partial, tl.program_id(0) * 2 + 1, c, tl.sum(along, 0), C, BLOCK_C)


@triton.jit
def common_part(stats, scale, sums, c, C: tl.constexpr, BLOCK_C: tl.constexpr):
    """What statistics of the batch take from every ∂ℓ: γ/√v ⊙ (Σg + ℓ̂ Σgℓ̂)/n, as (constant, slope) in ℓ̂."""
    n = tl.load(stats + 4 * C)
    share = tl.where(n >= 2.0, 1.0 / tl.maximum(n, 1.0), 0.0)
    factor = row(stats, 1, c, C, BLOCK_C) * row(scale, 0, c, C, BLOCK_C) * share
    return factor * row(sums, 0, c, C, BLOCK_C), factor * row(sums, 1, c, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "share", "threshold", "rescale"])
def backward_targets(
    told, logits, order, others, ptr, push_of, means, grad, mask, stats, scale, shift, seed,
    d_told, hats, sums, grad_nodes, d_logits, threshold, rescale, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, PARTS: tl.constexpr, SITE: tl.constexpr,
):  # fmt: skip
    """∂t_i = Σ_j ∂ℓ_ij and ∂a_i for a share of the nodes i; with edge features also ∂ℓ, maybe over ``logits``.

    Where statistics of the batch take their part, it is taken from ∂s_i too.
    """
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    if grad is not None and scale is not None:
        factor = (row(stats, 1, c, C, BLOCK_C) * row(scale, 0, c, C, BLOCK_C))[None, :]
        if sums is not None:
            constant, slope = common_part(stats, scale, sums, c, C, BLOCK_C)
    for node in range(first, tl.minimum(first + share, nodes)):
        push = row(push_of, node, c, C, BLOCK_C)
        mean = row(means, nodes + node, c, C, BLOCK_C)
        by_logit = nothing(BLOCK_E, BLOCK_C)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            valid, edge, other, logit = edges_of(at, end, order, others, logits, c, C, BLOCK_E, BLOCK_C)
            gate = tl.sigmoid(logit)
            away = gather(told, other * PARTS + NEIGHBOR, valid, c, C, BLOCK_C) - mean[None, :]
            change = gate * (1.0 - gate) * push[None, :] * away
            if grad is not None:
                hat, g = update_gradient(
                    logit, edge, valid, c, grad, mask, stats, scale, shift, seed, threshold, rescale, C, BLOCK_C, SITE
                )
                if scale is not None:
                    g *= factor
                    if sums is not None:
                        less = constant[None, :] + hat * slope[None, :]
                        if mask is not None:
                            less = tl.where(real_edges(mask, edge, valid)[:, None], less, 0.0)
                        g -= less
                change += g
            change = tl.where(valid[:, None], change, 0.0)
            if d_logits is not None:
                scatter(d_logits, edge, valid, c, change, C, BLOCK_C)
            by_logit += change
        put_row(d_told, node * 4 + TARGET, c, tl.sum(by_logit, 0), C, BLOCK_C)
        put_row(d_told, node * 4 + OWN, c, row(grad_nodes, node, c, C, BLOCK_C), C, BLOCK_C)
        if sums is not None:
            number = tl.load(hats + nodes * tl.full([], C, tl.int64) + node)
            less = number * constant + row(hats, node, c, C, BLOCK_C) * slope
            by_source = row(d_told, node * 4 + SOURCE, c, C, BLOCK_C)
            put_row(d_told, node * 4 + SOURCE, c, by_source - less, C, BLOCK_C)
