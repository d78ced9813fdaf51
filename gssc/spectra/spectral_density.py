"""How many eigenvalues lie below a value: stochastic Lanczos quadrature, good enough to place the edge of a filter.

A Lanczos run of s steps from a random unit vector z yields nodes θ_i and weights w_i, Σ w_i f(θ_i) ≈ zᵀ f(H) z, hence
N(λ) ≈ n Σ_{θ_i ≤ λ} w_i, averaged over columns z; near an end of the spectrum nodes lie as close as 1/s² of its width.
"""

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal

from gssc.spectra.chebyshev_filter import ChebyshevFilter, project_out_

COLUMNS = 8
FIRST_STEPS = 32
STEPS_LIMIT = 512
# Steps are doubled until so many nodes per column lie below the smallest value asked for, and so many between its half
# and the largest.
NODES_BELOW = 2.0
NODES_NEAR = 1.0
NODES = 24


def spectral_edges(solver: ChebyshevFilter, counts: list[int]) -> tuple[float, list[float]]:
    """The lowest eigenvalue besides the zero modes, as Lanczos sees it, and values below which so many lie.

    Also tightens ``solver.upper`` to the largest Ritz value plus its residual bound, where that is lower.
    """
    free = solver.n - solver.zero_modes.shape[1]
    most = min(STEPS_LIMIT, free - 1)
    vector = solver.normal(COLUMNS, stream=1)
    project_out_(vector, solver.zero_modes)
    vector /= torch.linalg.vector_norm(vector, dim=0)
    before = torch.zeros_like(vector)
    # Written in place: small results kept between large temporaries would scatter the heap.
    alphas, betas = torch.zeros(2, most, COLUMNS, dtype=torch.float64, device=solver.device)
    done, steps = 0, min(FIRST_STEPS, most)
    while True:
        for step in range(done, steps):
            if step:
                before *= -betas[step - 1]
            image = solver.matrix.step(vector, before, 1.0, 1.0)
            alphas[step] = torch.linalg.vecdot(vector, image, dim=0)
            image.addcmul_(vector, alphas[step], value=-1.0)
            project_out_(image, solver.zero_modes)
            betas[step] = torch.linalg.vector_norm(image, dim=0)
            image /= betas[step].clamp_min(1e-300)
            before, vector = vector, image
        solver.work += steps - done
        done = steps
        diagonal, off = alphas[:done].cpu().numpy(), betas[:done].cpu().numpy()
        pairs = [_quadrature(diagonal[:, i], off[:, i], solver) for i in range(COLUMNS)]
        theta, weight = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
        order = np.argsort(theta, kind="stable")
        theta, weight = theta[order], weight[order] * (free / COLUMNS)
        mass = np.cumsum(weight) - weight / 2
        solver.upper = min(solver.upper, _upper(diagonal[:FIRST_STEPS], off[:FIRST_STEPS], solver.scale))
        at = np.minimum(np.searchsorted(mass, counts), theta.size - 1)
        # A column that ends early has found an invariant subspace: more steps add nothing.
        short = any(nodes.size < min(NODES, done) for nodes, _ in pairs)
        # Outliers attract nodes of no weight: those around the values asked for are counted by themselves.
        near = int(np.searchsorted(mass, max(counts)) - np.searchsorted(mass, min(counts) / 2))
        if short or done >= most or (at.min() >= NODES_BELOW * COLUMNS and near >= NODES_NEAR * COLUMNS):
            return float(theta[0]), [float(theta[i]) for i in at]
        steps = min(2 * done, most)


def _ends_at(off: np.ndarray, scale: float) -> int:
    """Steps before an invariant subspace was reached: later coefficients are noise."""
    small = np.flatnonzero(off <= 1e-10 * scale)
    return int(small[0]) + 1 if small.size else off.size


def _quadrature(diagonal: np.ndarray, off: np.ndarray, solver: ChebyshevFilter) -> tuple[np.ndarray, np.ndarray]:
    """The lowest nodes of one column, and their weights."""
    steps = _ends_at(off, solver.scale)
    last = min(NODES, steps) - 1
    nodes, rotation = eigh_tridiagonal(diagonal[:steps], off[: steps - 1], select="i", select_range=(0, last))
    return nodes, rotation[0] ** 2


def _upper(diagonal: np.ndarray, off: np.ndarray, scale: float) -> float:
    """The largest Ritz value of all columns plus its residual; infinite where a column ended early."""
    largest = []
    for alpha, beta in zip(diagonal.T, off.T, strict=True):
        if _ends_at(beta, scale) < beta.size:
            return float("inf")
        last = alpha.size - 1
        theta, rotation = eigh_tridiagonal(alpha, beta[:-1], select="i", select_range=(last, last))
        largest.append(float(theta[0] + abs(beta[-1] * rotation[-1, 0])))
    return max(largest) + 1e-3 * scale
