"""Triton kernels of GINE's messages, m = ReLU(x_j + e_ij), and of GCN's sum. Imported only where they run.

What is not there, edge features or ε, is None.
"""

import triton
import triton.language as tl

from gssc.ops.edges.kernels import channels, gather, nothing, put_row, row, scatter


@triton.jit(do_not_specialize=["nodes", "share"])
def forward_nodes(
    x, attr, eps, order, others, ptr, out, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Σ_j ReLU(x_j + e_ij), plus (1 + ε) x_i where there is an ε, for a share of the nodes i; GCN's is without ReLU."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    for node in range(first, tl.minimum(first + share, nodes)):
        sums = nothing(BLOCK_E, BLOCK_C)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            message = gather(x, tl.load(others + position, mask=valid, other=0), valid, c, C, BLOCK_C)
            if attr is not None:
                message += gather(attr, tl.load(order + position, mask=valid, other=0), valid, c, C, BLOCK_C)
            if RELU:
                message = tl.maximum(message, 0.0)
            sums += message
        total = tl.sum(sums, 0)
        if eps is not None:
            total += row(x, node, c, C, BLOCK_C) * (1.0 + tl.load(eps).to(tl.float32))
        put_row(out, node, c, total, C, BLOCK_C)


@triton.jit(do_not_specialize=["nodes", "share"])
def backward_nodes(
    x, attr, grad, eps, order, others, ptr, d_x, d_attr, nodes, share,
    C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """∂e_ij = [m_ij > 0] ⊙ ∂h_i and ∂x_j = Σ_i ∂e_ij, plus (1 + ε) ∂h_j where there is an ε, for a share of nodes j."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    for node in range(first, tl.minimum(first + share, nodes)):
        sums = nothing(BLOCK_E, BLOCK_C)
        told = row(x, node, c, C, BLOCK_C)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            edge = tl.load(order + position, mask=valid, other=0)
            message = tl.zeros([BLOCK_E, BLOCK_C], dtype=tl.float32) + told[None, :]
            if attr is not None:
                message += gather(attr, edge, valid, c, C, BLOCK_C)
            change = gather(grad, tl.load(others + position, mask=valid, other=0), valid, c, C, BLOCK_C)
            change = tl.where(message > 0.0, change, 0.0)
            if d_attr is not None:
                scatter(d_attr, edge, valid, c, change, C, BLOCK_C)
            sums += change
        total = tl.sum(sums, 0)
        if eps is not None:
            total += row(grad, node, c, C, BLOCK_C) * (1.0 + tl.load(eps).to(tl.float32))
        put_row(d_x, node, c, total, C, BLOCK_C)
