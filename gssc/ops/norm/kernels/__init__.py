"""Triton kernels of norms of residuals. Imported only where they run: see ``triton.py``.

Blocks are [rows, channels]. Of padding rows nothing is read. ``stats`` [B, 5, C] holds for each branch the mean and
1/√(variance + ε) in use, and mean, Σ (u - mean)² and number of the rows (zero where statistics are not the batch's).
ACC is the dtype of sums: float64 for float64, else float32.
"""

from gssc.ops.norm.kernels.backward import backward_rows
from gssc.ops.norm.kernels.forward import forward_apply, forward_held, forward_merge, forward_moments
from gssc.ops.norm.kernels.running import move_running

__all__ = ["backward_rows", "forward_apply", "forward_held", "forward_merge", "forward_moments", "move_running"]
