"""Graph kernels without eigenvectors: random features whose inner products estimate the kernel."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp
import torch
from numpy.polynomial import Chebyshev
from torch import Tensor
from torch_geometric.data import Data

from gssc.checks import check_choice, check_positive, fail
from gssc.spectra.operators import DIRECTED, Directed, build_operator, degrees
from gssc.spectra.transforms import GraphTransform, attach

Kernel = Literal["diffusion", "regularized_laplacian", "random_walk"]
KERNELS = get_args(Kernel)
# Largest error of the square root of the kernel on the whole spectrum; far below what any number of probes resolves.
POLYNOMIAL_TOLERANCE = 1e-8
MAX_DEGREE = 4096


@dataclass(eq=False)
class RandomFeatures(GraphTransform):
    r"""Attach P̂ with :math:`E[\hat P \hat P^\top]` = a graph kernel, for graphs too large or too busy for eigenvectors.

    .. math:: \hat P = f(L)\,\Omega / \sqrt{k}, \qquad f^2 = \text{kernel}, \qquad E[\Omega\Omega^\top] = k I,

    with f a Chebyshev polynomial and Ω seeded random probes: one product with L per degree, O(E · degree · k) in all.
    Sets ``data.random_features [N, K]``, K = ``k`` · number of kernels, the columns of each kernel side by side.
    The error of P̂P̂ᵀ falls as 1/sqrt(k).

    Kernels: ``"diffusion"`` exp(-t L), ``"regularized_laplacian"`` (I + t L)^-1, ``"random_walk"`` (I - L/b)^steps with
    b the bound on the spectrum, 2 for ``"sym"``: the lazy walk ((I + S)/2)^steps with S = D^-1/2 A D^-1/2. All are 1 at
    λ = 0 and fall from there.

    There is no λ. The columns of one kernel are exchangeable, so they must share their gain: `GSSConv` does that when φ
    is the one-hot code of each column's kernel, which `phi` returns. ``lin_q`` and ``lin_k`` then learn one gain per
    kernel and channel: ``GSSConv(C, phi_channels=len(kernels))(x, transform.phi(G), data.random_features, batch)``.
    Not for ``selective=True``, which treats columns as distinct directions.

    Probes are drawn for the graph's content and ``seed``, never from the global random state: the same graph gets the
    same features, and different graphs get independent ones. A graph with renumbered nodes gets other probes, hence
    other features of the same distribution: the transform is permutation-equivariant in distribution, not path by
    path, since no rule that ignores node numbers could give the nodes of a symmetric graph different random numbers.

    Args:
        k: Probes per kernel.
        kernel: One of the kernels, or several; they share the probes and the products with L.
        t: Diffusion time, or the weight of L in the regularised Laplacian.
        steps: Length of the random walk, even, so that the square root of the kernel is a polynomial too.
        operator: ``"sym"`` or ``"combinatorial"``.
        probes: ``"rademacher"`` (±1, the smaller variance) or ``"gaussian"``.
        seed: Another seed, another draw.
        directed: ``"symmetrize"`` a directed graph edge by edge, or ``"reject"`` it.
        weight_attr: Attribute that holds edge weights, used where present; ``None`` ignores weights.
    """

    k: int = 32
    kernel: Kernel | Sequence[Kernel] = "diffusion"
    t: float = 1.0
    steps: int = 4
    operator: Literal["sym", "combinatorial"] = "sym"
    probes: Literal["rademacher", "gaussian"] = "rademacher"
    seed: int = 0
    directed: Directed = "symmetrize"
    weight_attr: str | None = "edge_weight"

    def __post_init__(self) -> None:
        check_positive("k", self.k)
        self.kernels: tuple[Kernel, ...] = (self.kernel,) if isinstance(self.kernel, str) else tuple(self.kernel)
        if not self.kernels:
            fail("kernel", "at least one kernel", "none")
        for name in self.kernels:
            check_choice("kernel", name, KERNELS)
        self.kernel = self.kernels[0] if len(self.kernels) == 1 else self.kernels
        if not (np.isfinite(self.t) and self.t > 0):
            fail("t", "a positive number", repr(self.t))
        check_positive("steps", self.steps)
        if self.steps % 2:
            fail("steps", "an even number (the square root of the kernel is then a polynomial)", self.steps)
        check_choice("operator", self.operator, ("sym", "combinatorial"))
        check_choice("probes", self.probes, ("rademacher", "gaussian"))
        check_choice("directed", self.directed, DIRECTED)

    def forward(self, data: Any) -> Data:
        return attach(data, {"random_features": self.features(self.adjacency(data))})

    def features(self, adjacency: sp.csr_array) -> np.ndarray:
        """P̂ [n, K] of a symmetric adjacency matrix, in float64."""
        laplacian = build_operator(adjacency, self.operator)
        bound = 2.0 if self.operator == "sym" else 2.0 * float(degrees(adjacency).max(initial=0.0))
        bound = bound or 1.0  # no edges: L = 0, and any bound will do
        return self.filtered(laplacian, bound, self._draw(adjacency))

    def filtered(self, laplacian: Any, bound: float, probes: np.ndarray) -> np.ndarray:
        """P̂ of probes [n, k], for a spectrum within [0, bound]."""
        roots = [chebyshev_coefficients(self._root(name, bound), bound) for name in self.kernels]
        return chebyshev_apply(laplacian, bound, roots, probes) / np.sqrt(self.k)

    def phi(self, num_graphs: int, device: torch.device | str | None = None) -> Tensor:
        """The φ that goes with the features, [G, K, number of kernels]: the one-hot code of each column's kernel."""
        code = torch.eye(len(self.kernels), dtype=torch.get_default_dtype(), device=device)
        return code.repeat_interleave(self.k, dim=0).expand(num_graphs, -1, -1)

    def _root(self, name: Kernel, bound: float) -> Callable[[np.ndarray], np.ndarray]:
        """The square root of a kernel as a function of λ in [0, bound]."""
        if name == "diffusion":
            return lambda x: np.exp(-0.5 * self.t * x)
        if name == "regularized_laplacian":
            return lambda x: (1.0 + self.t * x) ** -0.5
        return lambda x: (1.0 - x / bound) ** (self.steps // 2)

    def _draw(self, adjacency: sp.csr_array) -> np.ndarray:
        digest = hashlib.blake2b(f"{self.seed}|{adjacency.shape[0]}|".encode(), digest_size=16)
        for part in (adjacency.indptr.astype("<i8"), adjacency.indices.astype("<i8"), adjacency.data.astype("<f8")):
            digest.update(part.tobytes())
        return self.probe(np.random.default_rng(int.from_bytes(digest.digest(), "little")), adjacency.shape[0])

    def probe(self, generator: np.random.Generator, nodes: int) -> np.ndarray:
        """Ω [n, k]."""
        shape = (nodes, self.k)
        if self.probes == "gaussian":
            return generator.standard_normal(shape)
        return 2.0 * generator.integers(0, 2, shape, dtype=np.int8) - 1.0


def chebyshev_coefficients(function: Callable[[np.ndarray], np.ndarray], bound: float) -> np.ndarray:
    """Coefficients c_j with function(λ) = Σ_j c_j T_j(2λ/bound - 1) on [0, bound], as few as the tolerance allows."""
    degree, resolved = 8, f"a kernel that a polynomial of degree {MAX_DEGREE} resolves"
    while True:
        c = Chebyshev.interpolate(function, degree - 1, (0.0, bound)).trim(0.01 * POLYNOMIAL_TOLERANCE).coef
        # Last coefficients that were trimmed tell that the next ones would add nothing.
        if c.size <= degree - 4:
            return c
        if degree >= MAX_DEGREE:
            fail("t", resolved, f"one that varies faster ({bound=:g})")
        degree *= 2


def chebyshev_apply(laplacian: Any, bound: float, coefficients: Sequence[np.ndarray], block: np.ndarray) -> np.ndarray:
    """[Σ_j c_j T_j(2L/bound - I) block for c in coefficients], side by side, [n, k · number of functions]."""
    k = block.shape[1]
    out = np.zeros((block.shape[0], k * len(coefficients)))
    before, now = np.zeros_like(block), block
    for j in range(max(c.size for c in coefficients)):
        if j:
            # T_1 = x, then T_{j+1} = 2 x T_j - T_{j-1}.
            following = (2.0 / bound) * (laplacian @ now) - now
            before, now = now, (following if j == 1 else 2.0 * following - before)
        for i, c in enumerate(coefficients):
            if j < c.size:
                out[:, i * k : (i + 1) * k] += c[j] * now
    return out
