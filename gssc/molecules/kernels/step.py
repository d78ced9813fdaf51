"""The end of a training step: gradients of all slots added up, their norm, clipping, AdamW."""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import SLOT, rows_in_batch

BETA_1 = tl.constexpr(0.9)
BETA_2 = tl.constexpr(0.999)
ADAM_EPS = tl.constexpr(1e-8)
NOW = tl.constexpr(8)  # numbers that `sum_gradients` leaves for `adamw`: four of the table, step, whether rows >= 2


@triton.jit
def sum_gradients(batch, tables, sums, used, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """Program (block, replica): the sum over its slots, in their order, and its square."""
    replica = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.arange(0, CHUNK)
    graphs = batch.graphs
    first = replica * graphs
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, graphs, CHUNK):
        row = (first + begin + b).to(tl.int64)[:, None]
        mask = (begin + b < graphs)[:, None] & (i < used)[None, :]
        total += tl.sum(tl.load(sums.partial + row * batch.params_stride + i[None, :], mask=mask, other=0.0), 0)
    tl.store(sums.grads + replica * batch.params_stride + i, total, mask=i < used)
    tl.store(sums.squares + replica * tl.num_programs(0) + tl.program_id(0), tl.sum(total * total, 0))
    if tl.program_id(0) == 0:
        step = tl.load(tables.at)
        loss = 0.0
        for begin in range(0, graphs, CHUNK):
            loss += tl.sum(tl.load(sums.partial_losses + first + begin + b, mask=begin + b < graphs, other=0.0), 0)
        tl.store(tables.losses + step * tl.num_programs(1) + replica, loss)
        enough = rows_in_batch(batch.slots + first * SLOT, graphs, CHUNK) >= 2.0
        column = tl.arange(0, 4)
        now = sums.now + replica * NOW
        tl.store(now + column, tl.load(tables.rates + step * 4 + column))
        tl.store(now + 4, step.to(tl.float32))
        tl.store(now + 5, enough.to(tl.float32))


@triton.jit
def count_on(counters, number, more, COUNTERS: tl.constexpr):
    """Add to the first counters, ``number`` of them."""
    c = tl.arange(0, COUNTERS)
    tl.store(counters + c, tl.load(counters + c, mask=c < number) + more, mask=c < number)


@triton.jit
def adamw(
    batch, tables, sums, moments, weights, tracked, clip, decay, blocks, tensors, norms, used,
    BLOCK: tl.constexpr, BLOCKS: tl.constexpr, COUNTERS: tl.constexpr,
):  # fmt: skip
    """Clip by the norm of all gradients of a replica, then AdamW, as PyTorch computes them; the counters move on.

    Those are the steps of all ``tensors``, batches that the ``norms`` have ``tracked`` [replicas, norms], and ``at``.
    """
    replica = tl.program_id(1)
    j = tl.arange(0, BLOCKS)
    norm = tl.sqrt(tl.sum(tl.load(sums.squares + replica * blocks + j, mask=j < blocks, other=0.0), 0))
    factor = 1.0
    if clip > 0.0:
        factor = tl.where(norm + 1e-6 > clip, clip / (norm + 1e-6), 1.0)
        factor = tl.where(norm == norm, factor, norm)
    now = sums.now + replica * NOW
    rate = tl.load(now)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < used
    at_i = replica * batch.params_stride + i
    g = tl.load(sums.grads + at_i, mask=mask, other=0.0) * factor
    m = tl.load(moments.exp_avg + at_i, mask=mask, other=0.0)
    v = tl.load(moments.exp_avg_sq + at_i, mask=mask, other=0.0)
    p = tl.load(weights + at_i, mask=mask, other=0.0)
    m += (g - m) * (1.0 - BETA_1)
    v = v * BETA_2 + g * g * (1.0 - BETA_2)
    p = p * (1.0 - rate * decay)
    p -= rate * tl.load(now + 1) * m / (tl.sqrt(v) * tl.load(now + 2) + ADAM_EPS)
    tl.store(moments.exp_avg + at_i, m, mask=mask)
    tl.store(moments.exp_avg_sq + at_i, v, mask=mask)
    tl.store(weights + at_i, p, mask=mask)
    if tl.program_id(0) == 0:
        count_on(moments.steps + replica * tensors, tensors, 1.0, COUNTERS)
        count_on(tracked + replica * norms, norms, tl.load(now + 5).to(tl.int64), COUNTERS)
        # A gradient that overflows spoils the weights while the loss still looks well.
        if (norm < float("inf")) == 0:
            step = tl.load(now + 4).to(tl.int64)
            tl.store(tables.losses + step * tl.num_programs(1) + replica, float("nan"))
        if replica == 0:
            tl.store(tables.at, tl.load(tables.at) + 1)
