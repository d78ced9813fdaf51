"""Triton kernels of norms of residuals. Imported only where they run: see ``triton.py``.

Blocks are [rows, channels]. Of padding rows nothing is read. ``stats`` [B, 5, C] holds for each branch the mean and
1/√(variance + ε) in use, and mean, Σ (u - mean)² and number of the rows (zero where statistics are not the batch's).
h2 is None where there is one branch. ACC is the dtype of sums: float64 for float64, else float32.
"""

from gssc.ops.norm.kernels.backward import backward_rows
from gssc.ops.norm.kernels.forward import forward_merge, forward_moments, forward_rows

__all__ = ["backward_rows", "forward_merge", "forward_moments", "forward_rows"]
