"""Return probabilities of random walks: diag((D^-1 A)^t) for t = 1 … steps."""

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.spectra.operators import check_weights_nonnegative, normalized_adjacency

# Below this many nodes dense powers are faster than sparse ones, which fill up after a few steps anyway.
DENSE_NODES = 1024
# Of a larger graph, rows of the powers are made in blocks: at most so many entries where they fill up, but not fewer
# rows than that.
BLOCK_ENTRIES, BLOCK_ROWS = 2**23, 256


def return_probabilities(adjacency: sp.csr_array, steps: int) -> np.ndarray:
    """Probability that a walk from u is back at u after t steps, [n, steps]; zero for isolated nodes.

    With S = D^-1/2 A D^-1/2 the diagonal of (D^-1 A)^t is that of S^t, and since S is symmetric diag(S^(a+b)) =
    rowsum(S^a ⊙ S^b): powers up to steps/2 suffice. Memory is linear in n; time is not, where the powers fill up.
    """
    walk = walk_matrix(adjacency)
    n = adjacency.shape[0]
    if n <= DENSE_NODES:
        return return_probabilities_dense(torch.from_numpy(walk.toarray())[None], steps)[0].numpy()
    out = np.zeros((n, steps))
    out[:, 0] = walk.diagonal()
    rows = max(BLOCK_ROWS, BLOCK_ENTRIES // n)
    for first in range(0, n, rows):
        block = slice(first, min(first + rows, n))
        power = walk[block]  # these rows of S^a
        for t in range(2, steps + 1):
            following = power @ walk if t % 2 else power
            out[block, t - 1] = np.asarray((power * following).sum(axis=1)).reshape(-1)
            power = following
    return out


def walk_matrix(adjacency: sp.csr_array, graph: Tensor | None = None) -> sp.csr_array:
    """S = D^-1/2 A D^-1/2, of weights of at least zero; ``graph`` as for `adjacency_matrix`."""
    check_weights_nonnegative(adjacency, "random walk", graph)
    return normalized_adjacency(adjacency)


def return_probabilities_dense(walk: Tensor, steps: int) -> Tensor:
    """diag(S^t) for t = 1 … steps of many small graphs, [B, m, steps], from S = D^-1/2 A D^-1/2, [B, m, m].

    All terms are at least zero, so that nothing cancels and the precision of the result will do for the powers.

    With p about sqrt(steps): the diagonals of S, …, S^p, and then, since S is symmetric, diag(S^(qp+r)) = colsum(S^qp ⊙
    S^r). That takes about 2 sqrt(steps) products instead of steps.
    """
    small = [walk]
    while len(small) ** 2 < steps:
        small.append(small[-1] @ walk)
    p = len(small)
    out = walk.new_empty(steps, *walk.shape[:2])
    for t, power in enumerate(small[:steps]):
        out[t] = power.diagonal(dim1=1, dim2=2)
    large, product = small[-1], torch.empty_like(walk)
    for t in range(p, steps):
        if t % p == 0 and t > p:
            large = large @ small[-1]
        torch.sum(torch.mul(large, small[t % p], out=product), dim=1, out=out[t])
    return out.permute(1, 2, 0)
