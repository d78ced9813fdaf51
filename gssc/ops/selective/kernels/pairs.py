"""From the nodes to T = V ⊙ D_j: M ⊙ Φ_k, and, after a product with W_dv, gains and normalisation."""

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
def encode_forward(
    x, vectors, phi, ptr, encoded, counts, nodes, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """M[j,k] ⊙ Φ_k, and how many columns of P are not padding."""
    c, graph, begin, length = locate(ptr, nodes, C)
    k = tl.arange(0, BLOCK_K)
    moments = tl.zeros([BLOCK_K, BLOCK_K], dtype=tl.float32)
    found = tl.zeros([BLOCK_K], dtype=tl.float32)
    for first in range(0, length, BLOCK_N):
        rows = begin + first + tl.arange(0, BLOCK_N)
        valid = rows < begin + length
        p = load_vectors(vectors, rows, valid, k, K)
        features = load_channel(x, rows, valid, c, C)
        moments = tl.dot(tl.trans(p), p * features[:, None], moments, input_precision=PRECISION)
        found += tl.sum((p != 0.0).to(tl.float32), 0)
    gain = load_channel(phi, graph * K + k, k < K, c, C)
    store_pairs(encoded, c, graph, graphs, k, moments * gain[None, :], K)
    if c == 0:
        tl.store(counts + graph, tl.sum((found > 0.0).to(tl.float32), 0))


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
        rows = begin + first + tl.arange(0, BLOCK_N)
        valid = rows < begin + length
        p = load_vectors(vectors, rows, valid, k, K)
        features = load_channel(x, rows, valid, c, C)
        moments = tl.dot(tl.trans(p), p * features[:, None], moments, input_precision=PRECISION)
        read = tl.sum(p * tl.dot(p, d_moments, input_precision=PRECISION), 1)
        store_channel(d_x, rows, valid, c, read, C)
    store_channel(d_phi, graph * K + k, k < K, c, tl.sum(d_encoded * moments, 0), C)


@triton.jit(do_not_specialize=["graphs"])
def tame_forward(
    value, gains, counts, tensor, graphs, K: tl.constexpr, C: tl.constexpr, BLOCK_K: tl.constexpr, NORM: tl.constexpr
):
    """T = V ⊙ D_j, divided by sqrt(1 + ‖T‖²_F / k_valid) with NORM."""
    c, graph = tl.program_id(0) % C, (tl.program_id(0) // C).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    gain = load_channel(gains, graph * K + k, k < K, c, C)
    t = load_pairs(value, c, graph, graphs, k, K) * gain[:, None]
    if NORM:
        t = t * tl.rsqrt(1.0 + tl.sum(t * t) / tl.maximum(tl.load(counts + graph), 1.0))
    store_pairs(tensor, c, graph, graphs, k, t, K)


@triton.jit(do_not_specialize=["graphs"])
def tame_backward(
    grad, value, gains, counts, d_value, d_gains, graphs,
    K: tl.constexpr, C: tl.constexpr, BLOCK_K: tl.constexpr, NORM: tl.constexpr,
):  # fmt: skip
    """With s = 1 / sqrt(1 + ‖T‖² / k_valid): ∂T = s ∂ - s³ ⟨∂, T⟩ T / k_valid, ∂V = ∂T ⊙ D_j, ∂D_j = Σ_k ∂T ⊙ V."""
    c, graph = tl.program_id(0) % C, (tl.program_id(0) // C).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    gain = load_channel(gains, graph * K + k, k < K, c, C)
    v = load_pairs(value, c, graph, graphs, k, K)
    d = load_pairs(grad, c, graph, graphs, k, K)
    if NORM:
        t = v * gain[:, None]
        count = tl.maximum(tl.load(counts + graph), 1.0)
        scale = tl.rsqrt(1.0 + tl.sum(t * t) / count)
        d = scale * (d - (scale * scale * tl.sum(d * t) / count) * t)
    store_pairs(d_value, c, graph, graphs, k, d * gain[:, None], K)
    store_channel(d_gains, graph * K + k, k < K, c, tl.sum(d * v, 1), C)
