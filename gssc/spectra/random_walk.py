"""Return probabilities of random walks: diag((D^-1 A)^t) for t = 1 … steps."""

import numpy as np
import scipy.sparse as sp

from gssc.spectra.operators import check_weights_nonnegative, degrees, inverse_sqrt

# Below this many nodes dense powers are faster than sparse ones, which fill up after a few steps anyway.
DENSE_NODES = 1024


def return_probabilities(adjacency: sp.csr_array, steps: int) -> np.ndarray:
    """Probability that a walk from u is back at u after t steps, [n, steps]; zero for isolated nodes.

    With S = D^-1/2 A D^-1/2 the diagonal of (D^-1 A)^t is that of S^t, and since S is symmetric
    diag(S^(a+b)) = rowsum(S^a ⊙ S^b): powers up to steps/2 suffice.
    """
    check_weights_nonnegative(adjacency, "random walk")
    scale = sp.diags_array(inverse_sqrt(degrees(adjacency)))
    walk = (scale @ adjacency @ scale).tocsr()
    n = adjacency.shape[0]
    power = walk.toarray() if n <= DENSE_NODES else walk
    step = power
    out = np.zeros((n, steps))
    if n == 0:
        return out
    out[:, 0] = walk.diagonal()
    for t in range(2, steps + 1):
        following = power @ step if t % 2 else power
        out[:, t - 1] = np.asarray((power * following).sum(axis=1)).reshape(-1)
        power = following
    return out
