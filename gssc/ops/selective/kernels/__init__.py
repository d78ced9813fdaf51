"""Triton kernels of selection for batches of small graphs. Imported only where they run: see ``triton.py``.

A program works on one channel of one graph, whose pair tensor is a matrix [K, K] that fits into registers. Tensors of
pairs are [·, G, K, K] with channels first, so that this matrix is contiguous and weights are plain matrix products. The
nodes of the graph are passed in blocks, and what belongs to pairs of columns is made from rows p_u of P on the way:

    moments      M = Σ_v x_v p_vᵀ p_v            reading       Σ_jk P_uj P_uk R_jk = Σ_j P_uj (p_u R)_j
"""

from gssc.ops.selective.kernels.mix import mix_backward, mix_forward
from gssc.ops.selective.kernels.pairs import encode_backward, encode_forward, tame_backward, tame_forward

__all__ = ["encode_backward", "encode_forward", "mix_backward", "mix_forward", "tame_backward", "tame_forward"]
