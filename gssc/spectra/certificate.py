"""What is known about a computed spectrum: how accurate it is, and that nothing was missed."""

from dataclasses import dataclass
from typing import Literal


class SpectrumError(RuntimeError):
    """No trustworthy spectrum was found; the message says for which graph and why."""


@dataclass(frozen=True)
class Certificate:
    """Accuracy and completeness of one graph's spectrum.

    ``residual`` is max ‖L p - λ p‖, ``orthogonality`` max |PᵀP - I|, ``gap`` the distance from the last kept to the
    first dropped cluster (infinite when nothing was dropped), ``tolerance`` the cluster tolerance used. That no
    eigenvalue was missed is ``"proved"``, or ``"checked"`` up to ``miss_probability``.
    """

    solver: str
    level: Literal["proved", "checked"]
    residual: float
    orthogonality: float
    gap: float
    tolerance: float
    miss_probability: float
