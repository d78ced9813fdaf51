"""Triton kernel of the sum over neighbours. Imported only where it runs: see ``fused.py``."""

import triton
import triton.language as tl

from gssc.ops.edges.kernels import channels, gather, put_row


@triton.jit(do_not_specialize=["nodes", "share"])
def sum_of_neighbors(
    x, others, ptr, out, nodes, share, C: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """Σ_j x_j for a share of the nodes."""
    c = channels(BLOCK_C)
    first = tl.program_id(0) * share
    for node in range(first, tl.minimum(first + share, nodes)):
        total = tl.zeros([BLOCK_C], dtype=tl.float32)
        end = tl.load(ptr + node + 1)
        for at in range(tl.load(ptr + node), end, BLOCK_E):
            position = at + tl.arange(0, BLOCK_E)
            valid = position < end
            other = tl.load(others + position, mask=valid, other=0)
            total += tl.sum(gather(x, other, valid, c, C, BLOCK_C), 0)
        put_row(out, node, c, total, C, BLOCK_C)
