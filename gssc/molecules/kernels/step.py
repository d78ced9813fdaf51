"""The end of a training step: gradients of all slots added up, their norm, clipping, AdamW."""

import triton
import triton.language as tl

from gssc.molecules.kernels.common import rows_in_batch

BETA_1 = tl.constexpr(0.9)
BETA_2 = tl.constexpr(0.999)
ADAM_EPS = tl.constexpr(1e-8)
NOW = tl.constexpr(8)  # numbers that `sum_gradients` leaves for `adamw`: four of the table, step, whether rows >= 2


@triton.jit
def sum_gradients(
    at,
    slots,
    partial,  # [slots, params_stride]
    grads,  # [replicas, params_stride]
    squares,  # [replicas, blocks]
    losses_of_slots,  # [slots]
    losses,  # [steps, replicas]
    table,  # [steps, 4]: learning rate, 1 / (1 - β1^t), 1 / sqrt(1 - β2^t), and one number more
    now,  # [replicas, NOW]
    graphs,
    used,
    params_stride,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Program (block, replica): the sum over its slots, in their order, and its square."""
    replica = tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.arange(0, CHUNK)
    first = replica * graphs
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, graphs, CHUNK):
        row = (first + begin + b).to(tl.int64)[:, None]
        mask = (begin + b < graphs)[:, None] & (i < used)[None, :]
        total += tl.sum(tl.load(partial + row * params_stride + i[None, :], mask=mask, other=0.0), 0)
    tl.store(grads + replica * params_stride + i, total, mask=i < used)
    tl.store(squares + replica * tl.num_programs(0) + tl.program_id(0), tl.sum(total * total, 0))
    if tl.program_id(0) == 0:
        step = tl.load(at)
        loss = 0.0
        for begin in range(0, graphs, CHUNK):
            loss += tl.sum(tl.load(losses_of_slots + first + begin + b, mask=begin + b < graphs, other=0.0), 0)
        tl.store(losses + step * tl.num_programs(1) + replica, loss)
        enough = rows_in_batch(slots + first * 8, graphs, CHUNK) >= 2.0
        column = tl.arange(0, 4)
        tl.store(now + replica * NOW + column, tl.load(table + step * 4 + column))
        tl.store(now + replica * NOW + 4, step.to(tl.float32))
        tl.store(now + replica * NOW + 5, enough.to(tl.float32))


@triton.jit
def adamw(
    at,
    grads,
    squares,
    weights,
    exp_avg,
    exp_avg_sq,
    steps,  # [replicas, tensors], the step of every parameter
    tracked,  # [replicas, norms], batches that BatchNorms have seen
    losses,  # [steps, replicas]
    now,
    clip,
    decay,
    blocks,
    tensors,
    norms,
    used,
    params_stride,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    COUNTERS: tl.constexpr,
):
    """Clip by the norm of all gradients of a replica, then AdamW, as PyTorch computes them; the counters move on."""
    replica = tl.program_id(1)
    j = tl.arange(0, BLOCKS)
    norm = tl.sqrt(tl.sum(tl.load(squares + replica * blocks + j, mask=j < blocks, other=0.0), 0))
    factor = 1.0
    if clip > 0.0:
        factor = tl.where(norm + 1e-6 > clip, clip / (norm + 1e-6), 1.0)
        factor = tl.where(norm == norm, factor, norm)
    now += replica * NOW
    rate = tl.load(now)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < used
    at_i = replica * params_stride + i
    g = tl.load(grads + at_i, mask=mask, other=0.0) * factor
    m = tl.load(exp_avg + at_i, mask=mask, other=0.0)
    v = tl.load(exp_avg_sq + at_i, mask=mask, other=0.0)
    p = tl.load(weights + at_i, mask=mask, other=0.0)
    m += (g - m) * (1.0 - BETA_1)
    v = v * BETA_2 + g * g * (1.0 - BETA_2)
    p = p * (1.0 - rate * decay)
    p -= rate * tl.load(now + 1) * m / (tl.sqrt(v) * tl.load(now + 2) + ADAM_EPS)
    tl.store(exp_avg + at_i, m, mask=mask)
    tl.store(exp_avg_sq + at_i, v, mask=mask)
    tl.store(weights + at_i, p, mask=mask)
    if tl.program_id(0) == 0:
        c = tl.arange(0, COUNTERS)
        tl.store(steps + replica * tensors + c, tl.load(steps + replica * tensors + c, mask=c < tensors) + 1.0,
                 mask=c < tensors)  # fmt: skip
        enough = tl.load(now + 5).to(tl.int64)
        tl.store(tracked + replica * norms + c, tl.load(tracked + replica * norms + c, mask=c < norms) + enough,
                 mask=c < norms)  # fmt: skip
        # A gradient that overflows spoils the weights while the loss still looks well.
        if (norm < float("inf")) == 0:
            step = tl.load(now + 4).to(tl.int64)
            tl.store(losses + step * tl.num_programs(1) + replica, float("nan"))
        if replica == 0:
            tl.store(at, tl.load(at) + 1)
