"""What the kernels share: the graph of a program, gains, BatchNorm over the graphs of a batch, dropout.

Program number = slot number over all replicas. A slot holds a graph of n <= T nodes in a tile [T, C], of which only the
first n rows are read. What kernels are handed is in ``workspace.py``; ``M`` is its ``Constants``.
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
def rows_of(table, start, valid, WIDTH: tl.constexpr, N: tl.constexpr, T: tl.constexpr):
    """Rows of a table [nodes, WIDTH] for the nodes of a graph: [T, N], zero outside."""
    c = tl.arange(0, N)[None, :]
    return tl.load(table + (start + tl.arange(0, T))[:, None] * WIDTH + c, mask=valid & (c < WIDTH), other=0.0)


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
def moments_of(parts, source, ptr, number, graphs, WIDTH: tl.constexpr, N: tl.constexpr):
    """Nodes [CHUNK, 1], mean and sum of squared deviations [CHUNK, N] of graphs of a batch, zero beyond its end.

    They lie in the order of the slots, which are the ``source``; or, where there is a ``ptr``, by the number of the
    graph, of which the ``source`` is a list.
    """
    real = number < graphs
    if ptr is None:
        place = number
        n = tl.load(source + number * SLOT + 2, mask=real, other=0)
    else:
        place = tl.load(source + number, mask=real, other=0)
        n = tl.load(ptr + place + 1, mask=real, other=0) - tl.load(ptr + place, mask=real, other=0)
    c = tl.arange(0, N)[None, :]
    at = parts + place[:, None] * (2 * WIDTH) + c
    inside = real[:, None] & (c < WIDTH)
    return n.to(tl.float32)[:, None], tl.load(at, mask=inside, other=0.0), tl.load(at + WIDTH, mask=inside, other=0.0)


@triton.jit
def batch_moments(parts, source, ptr, graphs, WIDTH: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr):
    """Rows, mean and sum of squared deviations of a batch from those of its graphs (Chan et al.)."""
    b = tl.arange(0, CHUNK)
    rows = 0.0
    mean = tl.zeros([N], tl.float32)
    for first in range(0, graphs, CHUNK):
        n, means, _ = moments_of(parts, source, ptr, first + b, graphs, WIDTH, N)
        mean += tl.sum(n * means, 0)
        rows += tl.sum(tl.sum(n, 1), 0)
    mean = mean / tl.maximum(rows, 1.0)
    squares = tl.zeros([N], tl.float32)
    for first in range(0, graphs, CHUNK):
        n, means, deviations = moments_of(parts, source, ptr, first + b, graphs, WIDTH, N)
        away = means - mean[None, :]
        squares += tl.sum(deviations + n * away * away, 0)
    return rows, mean, squares


@triton.jit
def mean_and_scale(
    norm, parts, source, ptr, batch, replica, training, writes,
    WIDTH: tl.constexpr, N: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Mean and 1/deviation that a norm of WIDTH channels normalises by [N], from `batch_moments` or running statistics.

    In training the running statistics move on; but a batch of fewer than two rows is normalised by them, and leaves
    them alone. One program per replica ``writes``: no other reads what it changes.
    """
    running = norm.running + replica * batch.running_stride
    mean = vector(running, N, WIDTH)
    variance = vector(running + WIDTH, N, WIDTH)
    if training:
        rows, new_mean, squares = batch_moments(parts, source, ptr, batch.graphs, WIDTH, N, CHUNK)
        enough = rows >= 2.0
        if writes & enough:
            unbiased = squares / tl.maximum(rows - 1.0, 1.0)
            put_vector(running, mean * (1.0 - MOMENTUM) + new_mean * MOMENTUM, N, False, WIDTH)
            put_vector(running + WIDTH, variance * (1.0 - MOMENTUM) + unbiased * MOMENTUM, N, False, WIDTH)
        mean = tl.where(enough, new_mean, mean)
        variance = tl.where(enough, squares / tl.maximum(rows, 1.0), variance)
    scale = 1.0 / tl.sqrt(variance + EPS)
    if writes:
        kept = norm.kept + replica * (2 * N)
        put_vector(kept, mean, N)
        put_vector(kept + N, scale, N)
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
def affine(hat, norm, batch, replica, valid, C: tl.constexpr):
    """Weight and bias of a norm, which lie behind one another."""
    at = norm.weight + replica * batch.params_stride
    return tl.where(valid, hat * vector(at, C)[None, :] + vector(at + C, C)[None, :], 0.0)


@triton.jit
def normalized(x, norm, batch, replica, training, writes, valid, M: tl.constexpr):
    """A norm of C channels, whose moments lie in the order of the slots; and the same before weight and bias."""
    first = replica * batch.graphs
    parts = norm.parts + first * (2 * M.C)
    slots = batch.slots + first * SLOT
    mean, scale = mean_and_scale(norm, parts, slots, None, batch, replica, training, writes, M.C, M.C, M.CHUNK)
    hat = standardized(x, mean, scale, valid)
    return affine(hat, norm, batch, replica, valid, M.C), hat


@triton.jit
def normalized_again(x, norm, batch, replica, valid, M: tl.constexpr):
    """The same from what the norm has kept."""
    hat, _ = standardized_again(x, norm.kept + replica * (2 * M.C), valid, M.C)
    return affine(hat, norm, batch, replica, valid, M.C), hat


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
