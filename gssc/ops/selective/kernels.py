"""Triton kernels of selection for batches of small graphs. Imported only where they run: see ``triton.py``.

A program works on one channel of one graph, whose pair tensor is a matrix [K, K] that fits into registers. Tensors of
pairs are [·, G, K, K] with channels first, so that this matrix is contiguous and weights are plain matrix products. The
nodes of the graph are passed in blocks, and what belongs to pairs of columns is made from rows p_u of P on the way:

    moments      M = Σ_v x_v p_vᵀ p_v            reading       Σ_jk P_uj P_uk R_jk = Σ_j P_uj (p_u R)_j

From the nodes to T = V ⊙ D_j: M ⊙ Φ_k and, after a product with W_dv, gains and normalisation. From T_q, T_k, T_sq and
T_sk, which ``turned`` holds one after the other, back to the nodes.
"""

import triton
import triton.language as tl


@triton.jit
def locate(ptr, nodes, C: tl.constexpr):
    """Channel and graph of this program, the graph's first node and how many it has.

    Channels run fastest: neighbours in time read neighbours in memory of what is [N, C] or [G, K, C].
    """
    number = tl.program_id(0)
    graph = (number // C).to(tl.int64)
    # Clamped: a wrong ptr must not read or write outside the tensors.
    begin = tl.maximum(tl.load(ptr + graph), 0)
    end = tl.minimum(tl.load(ptr + graph + 1), nodes)
    return number % C, graph, begin, tl.maximum(end - begin, 0).to(tl.int32)


@triton.jit
def node_block(vectors, begin, length, first, k, K: tl.constexpr, BLOCK_N: tl.constexpr):
    """Nodes of a graph from its node ``first`` on: their numbers, which there are, and their rows of P as float32."""
    rows = begin + first + tl.arange(0, BLOCK_N)
    valid = rows < begin + length
    mask = valid[:, None] & (k < K)[None, :]
    return rows, valid, tl.load(vectors + rows[:, None] * K + k[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_channel(x, rows, valid, c, C: tl.constexpr):
    """One channel of rows of a [·, C] tensor, as float32."""
    return tl.load(x + rows * C + c, mask=valid, other=0.0).to(tl.float32)


@triton.jit
def store_channel(x, rows, valid, c, value, C: tl.constexpr):
    """One channel of rows of a [·, C] tensor, in its dtype."""
    tl.store(x + rows * C + c, value.to(x.dtype.element_ty), mask=valid)


@triton.jit
def load_pairs(base, channel, graph, graphs, k, K: tl.constexpr):
    """The matrix [K, K] of a channel and a graph, as float32."""
    mask = (k < K)[:, None] & (k < K)[None, :]
    at = base + (channel.to(tl.int64) * graphs + graph) * (K * K)
    return tl.load(at + k[:, None] * K + k[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def store_pairs(base, channel, graph, graphs, k, value, K: tl.constexpr):
    """The matrix [K, K] of a channel and a graph, in the tensor's dtype."""
    mask = (k < K)[:, None] & (k < K)[None, :]
    at = base + (channel.to(tl.int64) * graphs + graph) * (K * K)
    tl.store(at + k[:, None] * K + k[None, :], value.to(base.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["nodes", "graphs"])
def encode_forward(
    x, vectors, phi, ptr, encoded, counts, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """M[j,k] ⊙ Φ_k, and how many columns of P are not padding."""
    c, graph, begin, length = locate(ptr, nodes, C)
    k = tl.arange(0, BLOCK_K)
    moments = tl.zeros([BLOCK_K, BLOCK_K], dtype=tl.float32)
    entries = tl.zeros([BLOCK_K], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows, valid, p = node_block(vectors, begin, length, first, k, K, BLOCK_N)
        features = load_channel(x, rows, valid, c, C)
        moments = tl.dot(tl.trans(p), p * features[:, None], moments, input_precision=PRECISION)
        entries += tl.sum((p != 0.0).to(tl.float32), 0)
    gain = load_channel(phi, graph * K + k, k < K, c, C)
    store_pairs(encoded, c, graph, graphs, k, moments * gain[None, :], K)
    if c == 0:
        tl.store(counts + graph, tl.sum((entries > 0.0).to(tl.float32), 0))


@triton.jit(do_not_specialize=["nodes", "graphs"])
def encode_backward(
    grad, x, vectors, phi, ptr, d_x, d_phi, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """∂Φ_k = Σ_j ∂[j,k] ⊙ M[j,k] with M made again, ∂x_v = Σ_jk P_vj P_vk ∂[j,k] ⊙ Φ_k."""
    c, graph, begin, length = locate(ptr, nodes, C)
    k = tl.arange(0, BLOCK_K)
    d_encoded = load_pairs(grad, c, graph, graphs, k, K)
    gain = load_channel(phi, graph * K + k, k < K, c, C)
    d_moments = d_encoded * gain[None, :]
    moments = tl.zeros([BLOCK_K, BLOCK_K], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows, valid, p = node_block(vectors, begin, length, first, k, K, BLOCK_N)
        features = load_channel(x, rows, valid, c, C)
        moments = tl.dot(tl.trans(p), p * features[:, None], moments, input_precision=PRECISION)
        read = tl.sum(p * tl.dot(p, d_moments, input_precision=PRECISION), 1)
        store_channel(d_x, rows, valid, c, read, C)
    store_channel(d_phi, graph * K + k, k < K, c, tl.sum(d_encoded * moments, 0), C)


@triton.jit(do_not_specialize=["graphs"])
def tame_forward(value, gains, counts, tensor, graphs, K: tl.constexpr, C: tl.constexpr, BLOCK_K: tl.constexpr):
    """T = V ⊙ D_j, divided by sqrt(1 + ‖T‖²_F / k_valid) where there are ``counts``."""
    c, graph = tl.program_id(0) % C, (tl.program_id(0) // C).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    gain = load_channel(gains, graph * K + k, k < K, c, C)
    t = load_pairs(value, c, graph, graphs, k, K) * gain[:, None]
    if counts is not None:
        t = t * tl.rsqrt(1.0 + tl.sum(t * t) / tl.maximum(tl.load(counts + graph), 1.0))
    store_pairs(tensor, c, graph, graphs, k, t, K)


@triton.jit(do_not_specialize=["graphs"])
def tame_backward(
    grad, value, gains, counts, d_value, d_gains, graphs, K: tl.constexpr, C: tl.constexpr, BLOCK_K: tl.constexpr
):
    """With s = 1 / sqrt(1 + ‖T‖² / k_valid): ∂T = s ∂ - s³ ⟨∂, T⟩ T / k_valid, ∂V = ∂T ⊙ D_j, ∂D_j = Σ_k ∂T ⊙ V."""
    c, graph = tl.program_id(0) % C, (tl.program_id(0) // C).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    gain = load_channel(gains, graph * K + k, k < K, c, C)
    v = load_pairs(value, c, graph, graphs, k, K)
    d = load_pairs(grad, c, graph, graphs, k, K)
    if counts is not None:
        t = v * gain[:, None]
        count = tl.maximum(tl.load(counts + graph), 1.0)
        scale = tl.rsqrt(1.0 + tl.sum(t * t) / count)
        d = scale * (d - (scale * scale * tl.sum(d * t) / count) * t)
    store_pairs(d_value, c, graph, graphs, k, d * gain[:, None], K)
    store_channel(d_gains, graph * K + k, k < K, c, tl.sum(d * v, 1), C)


@triton.jit(do_not_specialize=["nodes", "graphs"])
def mix_forward(
    x_o, x_s, vectors, ptr, turned, out, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """H_u = Σ_j P_uj (B_j + x_s,u (p_u R)_j)."""
    c, graph, begin, length = locate(ptr, nodes, C)
    k = tl.arange(0, BLOCK_K)
    if x_o is not None:
        state = tl.zeros([BLOCK_K], dtype=tl.float32)
        for first in range(0, length, BLOCK_N):
            rows, valid, p = node_block(vectors, begin, length, first, k, K, BLOCK_N)
            state += tl.sum(p * load_channel(x_o, rows, valid, c, C)[:, None], 0)
        spread = tl.sum(load_pairs(turned, C + c, graph, graphs, k, K) * state[:, None], 0)
        answer = tl.sum(load_pairs(turned, c, graph, graphs, k, K) * spread[None, :], 1)
    if x_s is not None:
        sq = c if x_o is None else 2 * C + c
        t_sq, t_sk = load_pairs(turned, sq, graph, graphs, k, K), load_pairs(turned, sq + C, graph, graphs, k, K)
        gains = tl.dot(t_sk, tl.trans(t_sq), input_precision=PRECISION)
    for first in range(0, length, BLOCK_N):
        rows, valid, p = node_block(vectors, begin, length, first, k, K, BLOCK_N)
        h = tl.zeros([BLOCK_N], dtype=tl.float32)
        if x_s is not None:
            factor = tl.sum(p * tl.dot(p, gains, input_precision=PRECISION), 1)
            h += factor * load_channel(x_s, rows, valid, c, C)
        if x_o is not None:
            h += tl.sum(p * answer[None, :], 1)
        store_channel(out, rows, valid, c, h, C)


@triton.jit(do_not_specialize=["nodes", "graphs"])
def mix_backward(
    grad, x_o, x_s, vectors, ptr, turned, d_o, d_s, d_turned, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
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
        rows, valid, p = node_block(vectors, begin, length, first, k, K, BLOCK_N)
        g = load_channel(grad, rows, valid, c, C)
        if x_o is not None:
            state += tl.sum(p * load_channel(x_o, rows, valid, c, C)[:, None], 0)
            d_answer += tl.sum(p * g[:, None], 0)
        if x_s is not None:
            weighted = p * (g * load_channel(x_s, rows, valid, c, C))[:, None]
            d_gains = tl.dot(tl.trans(p), weighted, d_gains, input_precision=PRECISION)
    if x_o is not None:
        t_k = load_pairs(turned, C + c, graph, graphs, k, K)
        spread = tl.sum(t_k * state[:, None], 0)
        store_pairs(d_turned, c, graph, graphs, k, d_answer[:, None] * spread[None, :], K)
        d_spread = tl.sum(load_pairs(turned, c, graph, graphs, k, K) * d_answer[:, None], 0)
        store_pairs(d_turned, C + c, graph, graphs, k, state[:, None] * d_spread[None, :], K)
        d_state = tl.sum(t_k * d_spread[None, :], 1)
    if x_s is not None:
        sq = c if x_o is None else 2 * C + c
        t_sq, t_sk = load_pairs(turned, sq, graph, graphs, k, K), load_pairs(turned, sq + C, graph, graphs, k, K)
        store_pairs(d_turned, sq, graph, graphs, k, tl.dot(d_gains, t_sk, input_precision=PRECISION), K)
        store_pairs(d_turned, sq + C, graph, graphs, k, tl.dot(d_gains, t_sq, input_precision=PRECISION), K)
        gains = tl.dot(t_sk, tl.trans(t_sq), input_precision=PRECISION)
    for first in range(0, length, BLOCK_N):
        rows, valid, p = node_block(vectors, begin, length, first, k, K, BLOCK_N)
        if x_s is not None:
            factor = tl.sum(p * tl.dot(p, gains, input_precision=PRECISION), 1)
            store_channel(d_s, rows, valid, c, factor * load_channel(grad, rows, valid, c, C), C)
        if x_o is not None:
            store_channel(d_o, rows, valid, c, tl.sum(p * d_state[None, :], 1), C)
