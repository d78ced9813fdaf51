"""What Triton kernels share that hold one graph in a tile: vectors, matrices, products, the gradient of a Linear."""

import triton
import triton.language as tl

EPS = tl.constexpr(1e-5)  # of every norm


# REAL is how many numbers, or rows and columns, of a block of a power of two there are (0: all of them); the others are
# zero, and not in memory.


@triton.jit
def vector(at, N: tl.constexpr, REAL: tl.constexpr = 0):
    """N numbers."""
    n = tl.arange(0, N)
    return tl.load(at + n, mask=None if REAL % N == 0 else n < REAL, other=None if REAL % N == 0 else 0.0)


@triton.jit
def put_vector(at, value, N: tl.constexpr, more=False, REAL: tl.constexpr = 0):
    """Store N numbers; with ``more``, add them to those that are there."""
    n = tl.arange(0, N)
    if more:
        value += vector(at, N, REAL)
    tl.store(at + n, value, mask=None if REAL % N == 0 else n < REAL)


@triton.jit
def matrix(at, ROWS: tl.constexpr, COLUMNS: tl.constexpr, REAL: tl.constexpr = 0):
    """A matrix, row by row."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    mask = None if REAL % ROWS == 0 else (row < REAL) & (column < REAL)
    where = at + row * (COLUMNS if REAL == 0 else REAL) + column
    return tl.load(where, mask=mask, other=None if REAL % ROWS == 0 else 0.0)


@triton.jit
def put_matrix(at, value, ROWS: tl.constexpr, COLUMNS: tl.constexpr, more=False, REAL: tl.constexpr = 0):
    """Store a matrix, row by row; with ``more``, add it to the one that is there."""
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    mask = None if REAL % ROWS == 0 else (row < REAL) & (column < REAL)
    if more:
        value += matrix(at, ROWS, COLUMNS, REAL)
    tl.store(at + row * (COLUMNS if REAL == 0 else REAL) + column, value, mask=mask)


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
