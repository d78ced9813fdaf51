"""What is known about a computed spectrum: its certificate, and the error where none could be given.

The accuracy of the pairs kept is measured and judged by the gap at the cut. That no eigenvalue below the cut was missed
is ``proved``, as all eigenvalues are known (complete dense solves) or the inertia of L - σI, σ in the gap, equals the
number of pairs found below; or ``checked``, by a filtered random block (`ChebyshevBlock.miss_probability`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from torch import Tensor

# Largest residual accepted, absolute or relative to ‖L‖, whichever is larger (no float64 computation can do better than
# some 1e-16 · ‖L‖); and largest deviation of PᵀP from I.
RESIDUAL_LIMIT = 1e-5
RELATIVE_LIMIT = 1e-11
ORTHOGONALITY_LIMIT = 1e-8
# The residual must resolve the gap at the cut: the subspace kept is then turned by a tenth at most.
RESIDUAL_PER_GAP = 0.1
# A check that leaves more doubt than this has failed.
MISS_LIMIT = 1e-6


class SpectrumError(RuntimeError):
    """No solver could certify the spectrum of a graph; says which graph and why."""


class CountRefusedError(SpectrumError):
    """Why a count could not be certified, and whether it is known to be wrong (or only not known to be right)."""

    def __init__(self, reason: str, wrong: bool) -> None:
        super().__init__(reason)
        self.wrong = wrong


@dataclass(frozen=True)
class Certificate:
    """How a spectrum was computed, and what is known about it.

    Attributes:
        solver: The solver, or several joined by "+" where components of one graph needed different ones.
        level: ``"proved"`` or ``"checked"``: how it is known that no eigenvalue below the cut is missing.
        residual: max ‖L p - λ p‖ over the pairs kept, an upper bound where equal eigenvalues took their mean.
        orthogonality: max |PᵀP - I|.
        gap: Distance across the cut, from what is kept (or is a zero mode that was dropped on request) to the nearest
            eigenvalue that is not, of any sign; inf where one side is empty.
        turn: Bound of the sine of the angle between the space kept and the exact one: the Frobenius norm of L P - P Λ
            over the gap, less the error of the eigenvalue on its other side (Davis-Kahan).
        tolerance: Eigenvalues closer than this count as equal.
        miss_probability: Probability that the count is wrong though the check passed; 0 when proved.
    """

    solver: str
    level: Literal["proved", "checked"]
    residual: float
    orthogonality: float
    gap: float
    turn: float
    tolerance: float
    miss_probability: float


def read_certificate(stored: Mapping[str, Any]) -> Certificate:
    """The certificate of these fields; a ValueError where they are not those of one."""
    certificate = Certificate(**stored)
    numbers = [value for name, value in vars(certificate).items() if name not in ("solver", "level")]
    if certificate.level not in ("proved", "checked") or not all(isinstance(value, int | float) for value in numbers):
        raise ValueError("no certificate")
    return certificate


@dataclass(frozen=True)
class Pairs:
    """Approximate eigenpairs: values [m] ascending, vectors [n, m], residuals [m] = ‖L p - λ p‖, max |PᵀP - I|.

    The vectors of solvers that run in PyTorch are a tensor on their device.
    """

    values: np.ndarray
    vectors: np.ndarray | Tensor
    residuals: np.ndarray
    orthogonality: float


def residual_norms(matrix: sp.csr_array | np.ndarray, values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """‖L p - λ p‖ of every pair, [m]."""
    return np.asarray(np.linalg.norm(matrix @ vectors - vectors * values, axis=0))


def orthogonality(vectors: np.ndarray) -> float:
    """The deviation from orthonormal columns, max |PᵀP - I|, of vectors [n, m]."""
    gram = vectors.T @ vectors
    return float(np.abs(gram - np.eye(gram.shape[0])).max(initial=0.0))


def rayleigh_ritz(matrix: sp.csr_array, basis: np.ndarray) -> Pairs:
    """The best eigenpairs within the span of ``basis`` [n, m] (any full-rank basis)."""
    basis = np.linalg.qr(basis)[0]
    image = matrix @ basis
    values, rotation = np.linalg.eigh(basis.T @ image)
    vectors = basis @ rotation
    residuals = np.linalg.norm(image @ rotation - vectors * values, axis=0)
    return Pairs(values, vectors, np.asarray(residuals), orthogonality(vectors))


def lowest_pairs(pairs: Pairs, count: int, zero_modes: np.ndarray) -> Pairs:
    """The first ``count`` of these pairs; their orthogonality is measured together with the ``zero_modes`` [n, z]."""
    vectors = pairs.vectors[:, :count]
    whole = orthogonality(np.concatenate([zero_modes, vectors], axis=1))
    return Pairs(pairs.values[:count], vectors, pairs.residuals[:count], whole)


def judge(residual: float, orthogonal: float, gap: float, scale: float) -> str | None:
    """Why a spectrum of this accuracy cannot be certified; None when it can."""
    limit = min(max(RESIDUAL_LIMIT, RELATIVE_LIMIT * scale), RESIDUAL_PER_GAP * gap)
    if not residual <= limit:
        return f"residual {residual:.1e} exceeds {limit:.1e}"
    if not orthogonal <= ORTHOGONALITY_LIMIT:
        return f"orthogonality {orthogonal:.1e} exceeds {ORTHOGONALITY_LIMIT:.0e}"
    return None
