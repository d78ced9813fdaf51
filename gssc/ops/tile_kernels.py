"""What Triton kernels share that hold one graph in a tile: vectors, matrices, products, the gradient of a Linear."""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)  # of every norm


@triton.jit
def vector(at, N: tl.constexpr):
    """N numbers."""
    return tl.load(at + tl.arange(0, N))


@triton.jit
def put_vector(at, value, N: tl.constexpr, more=False):
    """Store N numbers; with ``more``, add them to those that are there."""
    at = at + tl.arange(0, N)
    if more:
        value += tl.load(at)
    tl.store(at, value)


@triton.jit
def matrix(at, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A matrix, row by row."""
    return tl.load(at + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :])


@triton.jit
def put_matrix(at, value, ROWS: tl.constexpr, COLUMNS: tl.constexpr, more=False):
    """Store a matrix, row by row; with ``more``, add it to the one that is there."""
    at = at + tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    if more:
        value += tl.load(at)
    tl.store(at, value)


@triton.jit
def tile_at(base, slot, T: tl.constexpr, C: tl.constexpr):
    """Addresses of a tile [T, C] of many."""
    return base + slot.to(tl.int64) * (T * C) + tl.arange(0, T)[:, None] * C + tl.arange(0, C)[None, :]


@triton.jit
def product(x, y, PRECISION: tl.constexpr):
    """XY."""
    return tl.dot(x, y, input_precision=PRECISION)


@triton.jit
def linear(x, at, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, PRECISION: tl.constexpr):
    """X Wᵀ for a weight [OUTPUTS, INPUTS]."""
    return tl.dot(x, tl.trans(matrix(at, OUTPUTS, INPUTS)), input_precision=PRECISION)


@triton.jit
def put_linear_gradient(
    at, d, x, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr, more=False
):
    """Gradient of a weight [OUTPUTS, INPUTS], DᵀX, and of the bias behind it; with ``more``, added."""
    put_matrix(at, tl.dot(tl.trans(d), x, input_precision=PRECISION), OUTPUTS, INPUTS, more)
    if BIAS:
        put_vector(at + OUTPUTS * INPUTS, tl.sum(d, 0), OUTPUTS, more)
