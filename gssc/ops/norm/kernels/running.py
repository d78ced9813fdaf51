"""Running statistics move on after a batch."""

import triton
import triton.language as tl

from gssc.ops.norm.kernels.rows import put, vector


@triton.jit
def put_moved(
    stats, mean, variance, batches, c,
    MOMENTUM: tl.constexpr, CUMULATIVE: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """Running statistics of one norm after a batch of at least two rows; else as they were."""
    n = tl.load(stats + 4 * C).to(ACC)
    if n >= 2.0:
        # Atomic, so that all threads of the program see the number before it grew.
        seen = tl.atomic_add(batches, 1) + 1
        step = tl.full([], MOMENTUM, dtype=ACC)
        if CUMULATIVE:
            step = 1.0 / seen.to(ACC)
        old = vector(mean, c, C, ACC)
        put(mean, c, (1.0 - step) * old + step * vector(stats + 2 * C, c, C, ACC), C, True)
        old = vector(variance, c, C, ACC)
        unbiased = vector(stats + 3 * C, c, C, ACC) / tl.maximum(n - 1.0, 1.0)
        put(variance, c, (1.0 - step) * old + step * unbiased, C, True)


@triton.jit
def move_running(
    stats, m1, v1, n1, m2, v2, n2,
    MOMENTUM: tl.constexpr, C: tl.constexpr, BLOCK_C: tl.constexpr, CUMULATIVE: tl.constexpr, TWO: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """Running statistics of one or two norms move on: one program for each."""
    c = tl.arange(0, BLOCK_C)
    if TWO:
        if tl.program_id(0) == 0:
            put_moved(stats, m1, v1, n1, c, MOMENTUM, CUMULATIVE, C, ACC)
        else:
            put_moved(stats + 5 * C, m2, v2, n2, c, MOMENTUM, CUMULATIVE, C, ACC)
    else:
        put_moved(stats, m1, v1, n1, c, MOMENTUM, CUMULATIVE, C, ACC)
