"""From T_q, T_k, T_sq, T_sk to the nodes."""

import triton
import triton.language as tl

from gssc.ops.selective.kernels.common import (
    load_channel,
    load_pairs,
    load_vectors,
    locate,
    store_channel,
    store_pairs,
)


@triton.jit(do_not_specialize=["nodes", "graphs"])
def mix_forward(
    x_o, x_s, vectors, ptr, turned, out, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
    HAS_GLOBAL: tl.constexpr, HAS_SELF: tl.constexpr,
):  # fmt: skip
    """H_u = Σ_j P_uj (B_j + x_s,u (p_u R)_j) from T_q, T_k, T_sq, T_sk, which ``turned`` holds one after the other."""
    c, graph, begin, length = locate(ptr, nodes, C)
    k = tl.arange(0, BLOCK_K)
    if HAS_GLOBAL:
        state = tl.zeros([BLOCK_K], dtype=tl.float32)
        for first in range(0, length, BLOCK_N):
            rows = begin + first + tl.arange(0, BLOCK_N)
            valid = rows < begin + length
            p = load_vectors(vectors, rows, valid, k, K)
            state += tl.sum(p * load_channel(x_o, rows, valid, c, C)[:, None], 0)
        spread = tl.sum(load_pairs(turned, C + c, graph, graphs, k, K) * state[:, None], 0)
        answer = tl.sum(load_pairs(turned, c, graph, graphs, k, K) * spread[None, :], 1)
    if HAS_SELF:
        t_sq = load_pairs(turned, (2 * C if HAS_GLOBAL else 0) + c, graph, graphs, k, K)
        t_sk = load_pairs(turned, (3 * C if HAS_GLOBAL else C) + c, graph, graphs, k, K)
        gains = tl.dot(t_sk, tl.trans(t_sq), input_precision=PRECISION)
    for first in range(0, length, BLOCK_N):
        rows = begin + first + tl.arange(0, BLOCK_N)
        valid = rows < begin + length
        p = load_vectors(vectors, rows, valid, k, K)
        h = tl.zeros([BLOCK_N], dtype=tl.float32)
        if HAS_SELF:
            own = tl.sum(p * tl.dot(p, gains, input_precision=PRECISION), 1)
            h += own * load_channel(x_s, rows, valid, c, C)
        if HAS_GLOBAL:
            h += tl.sum(p * answer[None, :], 1)
        store_channel(out, rows, valid, c, h, C)


@triton.jit(do_not_specialize=["nodes", "graphs"])
def mix_backward(
    grad, x_o, x_s, vectors, ptr, turned, d_o, d_s, d_turned, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
    HAS_GLOBAL: tl.constexpr, HAS_SELF: tl.constexpr,
):  # fmt: skip
    """Derivatives of ``mix_forward`` with U, S and R made again.

    ∂B = PᵀG          ∂T_q[j,k] = ∂B_j S_k      ∂S_k = Σ_j T_q[j,k] ∂B_j
                      ∂T_k[j,k] = U_j ∂S_k      ∂U_j = Σ_k T_k[j,k] ∂S_k     ∂X_o = P ∂U
    ∂R = Σ_u g_u x_s,u p_uᵀ p_u, symmetric      ∂T_sq = ∂R T_sk              ∂T_sk = ∂R T_sq
    """
    c, graph, begin, length = locate(ptr, nodes, C)
    k = tl.arange(0, BLOCK_K)
    state = tl.zeros([BLOCK_K], dtype=tl.float32)
    d_answer = tl.zeros([BLOCK_K], dtype=tl.float32)
    d_gains = tl.zeros([BLOCK_K, BLOCK_K], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows = begin + first + tl.arange(0, BLOCK_N)
        valid = rows < begin + length
        p = load_vectors(vectors, rows, valid, k, K)
        g = load_channel(grad, rows, valid, c, C)
        if HAS_GLOBAL:
            state += tl.sum(p * load_channel(x_o, rows, valid, c, C)[:, None], 0)
            d_answer += tl.sum(p * g[:, None], 0)
        if HAS_SELF:
            weighted = p * (g * load_channel(x_s, rows, valid, c, C))[:, None]
            d_gains = tl.dot(tl.trans(p), weighted, d_gains, input_precision=PRECISION)
    if HAS_GLOBAL:
        t_k = load_pairs(turned, C + c, graph, graphs, k, K)
        spread = tl.sum(t_k * state[:, None], 0)
        store_pairs(d_turned, c, graph, graphs, k, d_answer[:, None] * spread[None, :], K)
        d_spread = tl.sum(load_pairs(turned, c, graph, graphs, k, K) * d_answer[:, None], 0)
        store_pairs(d_turned, C + c, graph, graphs, k, state[:, None] * d_spread[None, :], K)
        d_state = tl.sum(t_k * d_spread[None, :], 1)
    if HAS_SELF:
        t_sq = load_pairs(turned, (2 * C if HAS_GLOBAL else 0) + c, graph, graphs, k, K)
        t_sk = load_pairs(turned, (3 * C if HAS_GLOBAL else C) + c, graph, graphs, k, K)
        d_sq = tl.dot(d_gains, t_sk, input_precision=PRECISION)
        store_pairs(d_turned, (2 * C if HAS_GLOBAL else 0) + c, graph, graphs, k, d_sq, K)
        d_sk = tl.dot(d_gains, t_sq, input_precision=PRECISION)
        store_pairs(d_turned, (3 * C if HAS_GLOBAL else C) + c, graph, graphs, k, d_sk, K)
        gains = tl.dot(t_sk, tl.trans(t_sq), input_precision=PRECISION)
    for first in range(0, length, BLOCK_N):
        rows = begin + first + tl.arange(0, BLOCK_N)
        valid = rows < begin + length
        p = load_vectors(vectors, rows, valid, k, K)
        if HAS_SELF:
            own = tl.sum(p * tl.dot(p, gains, input_precision=PRECISION), 1)
            store_channel(d_s, rows, valid, c, own * load_channel(grad, rows, valid, c, C), C)
        if HAS_GLOBAL:
            store_channel(d_o, rows, valid, c, tl.sum(p * d_state[None, :], 1), C)
