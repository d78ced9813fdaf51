"""The recurrence in Triton: chunks of rows at once, whatever graphs they are of.

Of every chunk its last row from zero, and by how much it lets an earlier one decay; from chunk to chunk, which is the
same recurrence again over fewer rows; then every chunk from the row before it. Inside a chunk rows are joined by an
associative scan in registers. Backwards all goes from the other end. Sums are made in a fixed order.
"""

import torch
from torch import Tensor

from gssc.ops.launch import contiguous, kernels_of, launch

CHUNK, COLUMNS = 64, 32  # rows and columns of a program


def recurrence(a: Tensor, b: Tensor, backwards: bool, shift: int | None = None) -> Tensor:
    """Arguments as in ``gssc.ops.scan``; row t goes with a_{t + shift}."""
    a, b = contiguous(a, b)
    (rows, columns), shift = b.shape, int(backwards) if shift is None else shift
    chunks, before, kernel = -(-rows // CHUNK), None, kernels_of("scan").scan
    grid, numbers = (chunks, -(-columns // COLUMNS)), (rows, chunks)
    sizes = {"F": columns, "T": CHUNK, "BLOCK_F": COLUMNS, "BACKWARDS": backwards, "SHIFT": shift, "num_warps": 4}
    if chunks > 1:
        ends = b.new_empty(2, chunks, columns, dtype=torch.float32)
        launch(kernel, grid, a, b, None, *ends, numbers=numbers, ENDS=True, **sizes)
        before = recurrence(ends[0], ends[1], backwards, shift=0)
    out = torch.empty_like(b)
    launch(kernel, grid, a, b, before, None, out, numbers=numbers, ENDS=False, **sizes)
    return out
