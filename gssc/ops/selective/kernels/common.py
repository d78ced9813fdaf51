"""Where a program of selection works, and how it reads and writes there."""

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
def load_vectors(vectors, rows, valid, k, K: tl.constexpr):
    """Rows of P, [rows, K], as float32."""
    mask = valid[:, None] & (k < K)[None, :]
    return tl.load(vectors + rows[:, None] * K + k[None, :], mask=mask, other=0.0).to(tl.float32)


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
