"""One step of a three-term recurrence, Z ← α H X + β X + γ Z, in one pass over a sparse matrix: Triton, on a GPU.

Blocks are row-major [n, b], so that a neighbour costs one read of b numbers that lie together. A program takes a block
of rows and, a few entries at a time, gathers the rows of X they point to; it goes on to the longest of its rows, so
rows are taken in the order of their length. Rows longer than `LONG_ROW` (hubs) are cut into pieces of `PIECE` entries,
one program each, whose sums a last kernel adds. There are no atomic additions: the same bytes in every run.

A product reads 4 + s bytes per entry, s the size of a number, gathers b·s, and reads or writes 3 b·s per row.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LONG_ROW = 64
PIECE = 512
# Entries of a short row taken together; rows that need as many rounds are taken together.
ROUND = 4
# Bytes that the rows of X gathered at once by one program fill, and of one such row, at most.
TILE_BYTES = 4096
ROW_BYTES = 128


@dataclass(frozen=True)
class RowPlan:
    """Which rows are short (in the order in which they are taken) and which long, with the pieces of the long.

    short [s]; long [l]; first [l + 1], the pieces of each long row; begins, ends [p], the entries of each piece without
    the diagonal entry at the start of the row.
    """

    short: Tensor
    long: Tensor
    first: Tensor
    begins: Tensor
    ends: Tensor

    @classmethod
    def of(cls, crow: Tensor) -> "RowPlan":
        """The plan for a matrix with these row starts [n + 1]."""
        length = crow.diff().long() - 1
        rounds = torch.where(length > LONG_ROW, -1, (length + ROUND - 1) // ROUND)
        # Longest first, so that none is left for the end; in their own order otherwise, for the sake of caches.
        rounds, order = rounds.sort(descending=True, stable=True)
        long = order[rounds < 0]
        short = order[: order.numel() - long.numel()]
        pieces = (length[long] + PIECE - 1) // PIECE
        first = torch.cat([pieces.new_zeros(1), pieces.cumsum(0)])
        owner = torch.repeat_interleave(torch.arange(long.numel(), device=crow.device), pieces)
        number = torch.arange(owner.numel(), device=crow.device) - first[owner]
        begins = crow[long[owner]].long() + 1 + PIECE * number
        ends = torch.minimum(begins + PIECE, crow[long[owner] + 1].long())
        tensors = (short.to(torch.int32), long.to(torch.int32), first, begins, ends)
        return cls(*(tensor.contiguous() for tensor in tensors))


def fused_step(
    plan: RowPlan, crow: Tensor, col: Tensor, weight: Tensor, coefficients: Tensor, x: Tensor, z: Tensor, adds: bool
) -> None:
    """Z ← α H X + β X + γ Z in place; without γ Z, which may be uninitialised, unless ``adds``. Deterministic.

    ``plan`` and ``crow`` [n + 1], ``col`` [nnz], ``weight`` [nnz] are those of the matrix, the first entry of every row
    its diagonal; ``coefficients`` [3] are α, β, γ; ``x`` and ``z`` [n, b] are contiguous. Numbers have one dtype.
    """
    from gssc.spectra import product_kernels as kernels

    width = x.shape[1]
    if not width:
        return
    block = min(1 << (width - 1).bit_length(), ROW_BYTES // x.element_size())
    rows = max(1, TILE_BYTES // (block * x.element_size()))
    across, align = -(-width // block), math.gcd(width, 16)
    shape = (width // align, align, block)
    short, long, pieces = plan.short.numel(), plan.long.numel(), plan.begins.numel()
    if short:
        grid = (-(-short // rows), across)
        kernels.short_rows[grid](plan.short, short, crow, col, weight, x, z, coefficients, *shape, rows, adds)
    if long:
        partial = torch.empty(pieces, width, dtype=x.dtype, device=x.device)
        kernels.long_parts[pieces, across](plan.begins, plan.ends, col, weight, x, partial, *shape, rows)
        of_rows = (plan.long, plan.first, crow, weight, x, z, partial, coefficients)
        kernels.long_rows[long, across](*of_rows, *shape, 16, adds)
