"""Return probabilities of random walks: diag((D^-1 A)^t) for t = 1 … steps."""

import numpy as np
import scipy.sparse as sp

from gssc.spectra.operators import check_weights_nonnegative, normalized_adjacency

# Below this many nodes dense powers are faster than sparse ones, which fill up after a few steps anyway.
DENSE_NODES = 1024
# Of a larger graph, rows of the powers are made in blocks: at most so many entries where they fill up, but not fewer
# rows than that.
BLOCK_ENTRIES, BLOCK_ROWS = 2**23, 256


def return_probabilities(adjacency: sp.csr_array, steps: int) -> np.ndarray:
    """Probability that a walk from u is back at u after t steps, [n, steps]; zero for isolated nodes.

    With S = D^-1/2 A D^-1/2 the diagonal of (D^-1 A)^t is that of S^t, and since S is symmetric
    diag(S^(a+b)) = rowsum(S^a ⊙ S^b): powers up to steps/2 suffice. Memory is linear in n; time is not,
    where the powers fill up.
    """
    check_weights_nonnegative(adjacency, "random walk")
    walk = normalized_adjacency(adjacency)
    n = adjacency.shape[0]
    out = np.zeros((n, steps))
    if n == 0:
        return out
    out[:, 0] = walk.diagonal()
    step = walk.toarray() if n <= DENSE_NODES else walk
    rows = n if n <= DENSE_NODES else max(BLOCK_ROWS, BLOCK_ENTRIES // n)
    for first in range(0, n, rows):
        block = slice(first, min(first + rows, n))
        power = step[block]  # these rows of S^a
        for t in range(2, steps + 1):
            following = power @ step if t % 2 else power
            out[block, t - 1] = np.asarray((power * following).sum(axis=1)).reshape(-1)
            power = following
    return out
