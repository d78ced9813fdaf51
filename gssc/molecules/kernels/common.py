"""What the kernels share: the graph of a program, gains, BatchNorm over the graphs of a batch, dropout.

Program number = slot number over all replicas. A slot holds a graph of n <= T nodes in a tile [T, C], of which only the
first n rows are read. What kernels are handed is in ``arguments.py``; ``M`` is its ``Constants``.
"""

import triton
import triton.language as tl

from gssc.ops.tile_kernels import EPS, linear, put_vector, tile_at, vector

SLOT = tl.constexpr(8)
MOMENTUM = tl.constexpr(0.1)


@triton.jit
def this_slot(batch):
    """The slot of this program, its replica, and the first slot of that."""
    slot = tl.program_id(0)
    replica = slot // batch.graphs
    return slot, replica, replica * batch.graphs


@triton.jit
def graph_in(batch, slot, T: tl.constexpr):
    """First node of the graph in a slot, number of nodes, which rows of its tile are nodes, key of dropout."""
    at = batch.slots + slot * SLOT
    n = tl.load(at + 2).to(tl.int32)
    return tl.load(at + 1), n, (tl.arange(0, T) < n)[:, None], tl.load(at + 4).to(tl.uint32)


@triton.jit
def tile_of(base, slot, valid, M: tl.constexpr):
    """The tile of a slot, zero in rows that are not valid."""
    return tl.load(tile_at(base, slot, M.T, M.C), mask=valid, other=0.0)


@triton.jit
def with_bias(x, at, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, M: tl.constexpr):
    """X Wᵀ + b; the bias lies behind the weight."""
    return linear(x, at, INPUTS, OUTPUTS, M.PRECISION) + vector(at + OUTPUTS * INPUTS, OUTPUTS)[None, :]


@triton.jit
def gains_of(gains, place, M: tl.constexpr):
    """A [KP, C], or [KP, 1] where it is shared by all channels."""
    k = tl.arange(0, M.KP)[:, None]
    if M.SHARED:
        a = tl.load(gains + place * M.K + k, mask=k < M.K, other=0.0)
    else:
        a = tl.load(gains + place * (M.K * M.C) + k * M.C + tl.arange(0, M.C)[None, :], mask=k < M.K, other=0.0)
    return a


@triton.jit
def put_gains(gains, place, a, M: tl.constexpr):
    """Store A [KP, C], summed over channels where these share it."""
    k = tl.arange(0, M.KP)
    if M.SHARED:
        tl.store(gains + place * M.K + k, tl.sum(a, 1), mask=k < M.K)
    else:
        at = gains + place * (M.K * M.C) + k[:, None] * M.C + tl.arange(0, M.C)[None, :]
        tl.store(at, a, mask=(k < M.K)[:, None])


@triton.jit
def put_moments(at, x, valid, n, C: tl.constexpr):
    """Mean and sum of squared deviations of the valid rows; the others are zero in x."""
    mean = tl.sum(x, 0) / tl.maximum(n, 1).to(tl.float32)
    deviation = tl.where(valid, x - mean[None, :], 0.0)
    put_vector(at, mean, C)
    put_vector(at + C, tl.sum(deviation * deviation, 0), C)


@triton.jit
def rows_in_batch(slots, graphs, CHUNK: tl.constexpr):
    """Number of nodes of all graphs of a replica, as a float; ``slots`` begins with its first."""
    b = tl.arange(0, CHUNK)
    total = tl.sum(tl.load(slots + b * SLOT + 2, mask=b < graphs, other=0), 0).to(tl.float32)
    for first in range(CHUNK, graphs, CHUNK):
        more = tl.load(slots + (first + b) * SLOT + 2, mask=first + b < graphs, other=0)
        total += tl.sum(more, 0).to(tl.float32)
    return total


@triton.jit
def batch_sum(parts, graphs, STRIDE: tl.constexpr, M: tl.constexpr):
    """Sum over the graphs of a replica of rows [C] that lie STRIDE apart, in a fixed order."""
    b = tl.arange(0, M.CHUNK)[:, None]
    c = tl.arange(0, M.C)[None, :]
    total = tl.sum(tl.load(parts + b * STRIDE + c, mask=b < graphs, other=0.0), 0)
    for first in range(M.CHUNK, graphs, M.CHUNK):
        total += tl.sum(tl.load(parts + (first + b) * STRIDE + c, mask=first + b < graphs, other=0.0), 0)
    return total


@triton.jit
def batch_moments(parts, slots, graphs, C: tl.constexpr, CHUNK: tl.constexpr):
    """Rows, mean and sum of squared deviations of a batch from those of its graphs (Chan et al.)."""
    b = tl.arange(0, CHUNK)
    c = tl.arange(0, C)[None, :]
    rows = rows_in_batch(slots, graphs, CHUNK)
    mean = tl.zeros([C], tl.float32)
    for first in range(0, graphs, CHUNK):
        real = first + b < graphs
        n = tl.load(slots + (first + b) * SLOT + 2, mask=real, other=0).to(tl.float32)[:, None]
        mean += tl.sum(n * tl.load(parts + (first + b)[:, None] * (2 * C) + c, mask=real[:, None], other=0.0), 0)
    mean = mean / tl.maximum(rows, 1.0)
    squares = tl.zeros([C], tl.float32)
    for first in range(0, graphs, CHUNK):
        real = first + b < graphs
        n = tl.load(slots + (first + b) * SLOT + 2, mask=real, other=0).to(tl.float32)[:, None]
        at = parts + (first + b)[:, None] * (2 * C) + c
        away = tl.load(at, mask=real[:, None], other=0.0) - mean[None, :]
        squares += tl.sum(tl.load(at + C, mask=real[:, None], other=0.0) + n * away * away, 0)
    return rows, mean, squares


@triton.jit
def settle(rows, mean, squares, running, kept, writes, N: tl.constexpr, WIDTH: tl.constexpr):
    """Mean and 1/deviation that a batch is normalised by; its running statistics move on.

    A batch of fewer than two rows is normalised by the running statistics, and leaves them alone. One program per
    replica ``writes``: no other reads what it changes.
    """
    c = tl.arange(0, N)
    real = c < WIDTH
    old_mean = tl.load(running + c, mask=real, other=0.0)
    old_var = tl.load(running + WIDTH + c, mask=real, other=0.0)
    enough = rows >= 2.0
    if writes & enough:
        tl.store(running + c, old_mean * (1.0 - MOMENTUM) + mean * MOMENTUM, mask=real)
        unbiased = squares / tl.maximum(rows - 1.0, 1.0)
        tl.store(running + WIDTH + c, old_var * (1.0 - MOMENTUM) + unbiased * MOMENTUM, mask=real)
    mean = tl.where(enough, mean, old_mean)
    scale = 1.0 / tl.sqrt(tl.where(enough, squares / tl.maximum(rows, 1.0), old_var) + EPS)
    if writes:
        tl.store(kept + c, mean)
        tl.store(kept + N + c, scale)
    return mean, scale


@triton.jit
def statistics(norm, batch, replica, training, writes, M: tl.constexpr):
    """Mean and 1/deviation of a norm: of the batch in training, from the running statistics else."""
    running = norm.running + replica * batch.running_stride
    if training:
        first = replica * batch.graphs
        slots = batch.slots + first * SLOT
        rows, mean, squares = batch_moments(norm.parts + first * (2 * M.C), slots, batch.graphs, M.C, M.CHUNK)
        mean, scale = settle(rows, mean, squares, running, norm.kept + replica * (2 * M.C), writes, M.C, M.C)
    else:
        mean = vector(running, M.C)
        scale = 1.0 / tl.sqrt(vector(running + M.C, M.C) + EPS)
    return mean, scale


@triton.jit
def standardized(x, mean, scale, valid):
    """(x - mean) · scale in the valid rows, zero elsewhere."""
    return tl.where(valid, (x - mean[None, :]) * scale[None, :], 0.0)


@triton.jit
def standardized_again(x, kept, valid, C: tl.constexpr):
    """What a norm made of x before weight and bias, and 1/deviation, from what it has kept."""
    scale = vector(kept + C, C)
    return standardized(x, vector(kept, C), scale, valid), scale


@triton.jit
def affine(hat, norm, valid, C: tl.constexpr):
    """Weight and bias of a norm, which lie behind one another."""
    return tl.where(valid, hat * vector(norm, C)[None, :] + vector(norm + C, C)[None, :], 0.0)


@triton.jit
def norm_gradient(d, hat, scale, weight, rows, sum_d, sum_d_hat, valid):
    """Gradient of what a norm was given, from sums of d and of d ⊙ hat over the batch."""
    share = tl.where(rows >= 2.0, 1.0 / tl.maximum(rows, 1.0), 0.0)
    around = d - (sum_d[None, :] + hat * sum_d_hat[None, :]) * share
    return tl.where(valid, around * (scale * weight)[None, :], 0.0)


@triton.jit
def mixed_bits(x):
    """A bijection of 32-bit numbers in which every bit depends on every other."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def dropped(x, p, key, salt, slot_in_batch, T: tl.constexpr, C: tl.constexpr):
    """Dropout as a function of key, salt and position: forward and backward draw the same."""
    if p > 0.0:
        stream = mixed_bits(key + salt.to(tl.uint32) * 0x9E3779B1)
        row = slot_in_batch * T + tl.arange(0, T)
        index = (row[:, None] * C + tl.arange(0, C)[None, :]).to(tl.uint32)
        uniform = (mixed_bits((index * 0x9E3779B1) ^ stream) >> 8).to(tl.float32) * (1.0 / 16777216.0)
        x = tl.where(uniform >= p, x * (1.0 / (1.0 - p)), 0.0)
    return x
