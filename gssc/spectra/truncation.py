"""Which eigenpairs of a graph are kept: one rule, for one graph and for many at once.

Solvers return rounding noise: sqrt(-1e-17) is NaN, and equal eigenvalues that differ in their last bit get different
gains, which breaks every symmetry of the layer. So values of magnitude up to a tolerance become exactly 0, every
cluster of eigenvalues that are equal within the tolerance takes its mean, and the cut never splits a cluster.

Graphs are the rows of tensors [B, m], on any device, and one graph is one row: row b holds ``count[b]`` eigenvalues,
ascending, and anything after them.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.checks import check_choice, check_positive, fail
from gssc.spectra.certificate import RESIDUAL_PER_GAP, Certificate
from gssc.spectra.operators import OPERATORS, Operator

ZeroModes = Literal["keep", "drop"]
Which = Literal["low", "high", "both"]
Truncation = Literal["eigenspace", "raw"]
# Two computed values of one eigenvalue differ by at most twice the accuracy of the solver; ten times leaves room.
CLUSTER_TOLERANCE = 10.0


@dataclass(frozen=True)
class SpectrumSettings:
    """Which eigenpairs of which operator are wanted; the arguments of `LaplacianSpectrum`."""

    k: int
    operator: Operator = "sym"
    zero_modes: ZeroModes = "keep"
    truncation: Truncation = "eigenspace"
    which: Which = "low"

    def __post_init__(self) -> None:
        check_choice("which", self.which, get_args(Which))
        if self.which != "low" and self.operator == "adjacency":
            fail("which", "'low' for operator 'adjacency', whose largest |λ| are taken", repr(self.which))
        if self.which == "both" and (self.operator, self.zero_modes) != ("sym", "keep"):
            given = f"{self.operator!r}, {self.zero_modes!r}"
            fail("which", "'low' or 'high', but for operator 'sym' with zero_modes 'keep'", f"'both' with {given}")
        check_positive("k", self.k)
        check_choice("operator", self.operator, OPERATORS)
        check_choice("zero_modes", self.zero_modes, get_args(ZeroModes))
        check_choice("truncation", self.truncation, get_args(Truncation))

    @property
    def by_magnitude(self) -> bool:
        """Whether the largest |λ| come first, of the adjacency matrix, L or L - I: both ends of these are looked at."""
        return self.operator == "adjacency" or self.which != "low"

    @property
    def drops_zeros(self) -> bool:
        """Whether λ = 0 is left out, of Laplacians only."""
        return self.zero_modes == "drop" and self.operator != "adjacency"

    @property
    def keeps_zeros_whole(self) -> bool:
        """Whether λ = 0 is kept as a whole eigenspace, for which there may be too many components."""
        return self.zero_modes == "keep" and self.truncation == "eigenspace" and not self.by_magnitude

    def moved_back(self, values: Tensor, mask: Tensor, tolerance: Tensor) -> Tensor:
        """Eigenvalues of L from those of the operator that was solved, L - I where both ends are wanted."""
        if self.which != "both":
            return values
        moved = (values + 1.0).masked_fill(~mask, 0.0)
        return moved.masked_fill(moved.abs() <= tolerance.unsqueeze(-1).to(moved.dtype), 0.0)


@dataclass(frozen=True)
class Spectrum:
    """K frequencies of one graph: values [K], vectors [n, K], mask [K] (True = valid); zero where masked.

    ``available`` counts the pairs that there were to choose from; none kept of some available is worth a warning.
    ``certificate`` says how accurate the pairs are and how it is known that none was missed.
    """

    values: np.ndarray
    vectors: np.ndarray
    mask: np.ndarray
    available: int
    certificate: Certificate


@dataclass(frozen=True)
class Selection:
    """Which pairs of B graphs are kept.

    ``values`` [B, K], ``mask`` [B, K] (True = valid) and ``index`` [B, K], the place of each kept pair among the m
    (0 where masked), are the result; ``available`` [B] counts the pairs that there were to choose from. ``merged``
    [B, m] are all values, cleaned, ``accepted`` [B, m] marks those on the kept side of the cut (zero modes that are
    dropped on request included), and ``gap`` [B] is the distance across the cut: inf where one side is empty.
    """

    values: Tensor
    mask: Tensor
    index: Tensor
    available: Tensor
    merged: Tensor
    accepted: Tensor
    gap: Tensor

    def residual(self, values: Tensor, errors: Tensor) -> Tensor:
        """A bound of ‖L p - λ p‖ over the pairs kept, [B], from ``errors`` [B, m] of the ``values`` [B, m] as computed.

        It grows by at most as much as a value moved to the mean of its cluster.
        """
        bound = errors + (self.merged - values).abs()
        return F.pad(bound, (0, 1)).gather(1, self.index).masked_fill(~self.mask, 0.0).amax(1)


def merge_clusters(values: Tensor, count: Tensor, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """Cluster means in place of ascending ``values`` [B, m], and each value's cluster number within its row.

    Neighbours closer than ``tolerance`` [B] are equal; what is within ``tolerance`` of zero is exactly zero. What
    follows the ``count`` [B] values of a row has clusters of its own.
    """
    rows, size = values.shape
    if values.numel() == 0:
        return values.clone(), torch.zeros_like(values, dtype=torch.long)
    tolerance = tolerance.unsqueeze(1)
    cleaned = values.masked_fill(values.abs() <= tolerance, 0.0)
    start = torch.ones_like(values, dtype=torch.bool)
    start[:, 1:] = cleaned.diff(dim=1) > tolerance
    start |= torch.arange(size, device=values.device) == count.unsqueeze(1)
    number = start.reshape(-1).cumsum(0) - 1
    lengths = torch.bincount(number)
    # Sums in the order of the values, on every device: atomic adds would not be reproducible.
    means = torch.segment_reduce(cleaned.reshape(-1), "sum", lengths=lengths) / lengths
    # A cluster that holds exact zeros is zero, not the mean of zeros and noise.
    means.index_fill_(0, number.masked_select(cleaned.reshape(-1) == 0.0), 0.0)
    merged, number = means.index_select(0, number).view(rows, size), number.view(rows, size)
    return merged, number - number[:, :1]


def largest_cluster(values: np.ndarray, tolerance: float) -> int:
    """How many of the ascending ``values`` [m] the largest cluster has."""
    row = torch.from_numpy(values).unsqueeze(0)
    _, cluster = merge_clusters(row, torch.tensor([values.size]), torch.tensor([tolerance], dtype=row.dtype))
    return int(torch.bincount(cluster[0], minlength=1).max())


def magnitude_order(values: Tensor, count: Tensor, tolerance: Tensor) -> Tensor:
    """Row-wise indices by |λ| descending, + before -, magnitudes within ``tolerance`` being ties; padding last."""
    padding = torch.arange(values.shape[1], device=values.device) >= count.unsqueeze(1)
    magnitude = values.abs().masked_fill(padding, torch.inf)
    ascending = magnitude.argsort(dim=1, stable=True)
    # Infinite padding would make the differences NaN; its clusters are not looked at.
    _, group = merge_clusters(magnitude.gather(1, ascending).nan_to_num(posinf=0.0), count, tolerance)
    rank = torch.empty_like(group).scatter_(1, ascending, group)
    key = -3 * rank - values.sign().long()
    return key.masked_fill(padding, torch.iinfo(torch.long).max).argsort(dim=1, stable=True)


def select(values: Tensor, count: Tensor, settings: SpectrumSettings, tolerance: Tensor, whole: bool) -> Selection:
    """The first k of each row's ``count`` [B] ascending eigenvalues, padded with zeros to k.

    Those first that are wanted: the largest |λ| or the smallest λ. With fewer than k pairs, all are
    kept; otherwise the eigenspace that straddles the cut is dropped if only ``whole`` ones are wanted.
    """
    k = settings.k
    size = values.shape[1]
    column = torch.arange(size, device=values.device)
    present = column < count.unsqueeze(1)
    merged, cluster = merge_clusters(values, count, tolerance)
    if settings.by_magnitude:
        # Zeros, which may be dropped, come last.
        order = magnitude_order(merged, count, tolerance)
        available = (present & (merged != 0.0)).sum(1) if settings.drops_zeros else count
    else:
        eligible = present & (merged != 0.0) if settings.drops_zeros else present
        order, available = (~eligible).long().argsort(dim=1, stable=True), eligible.sum(1)
    kept = available.clamp(max=k)
    if whole and size > k:
        # Members of one cluster stand side by side in every order, so that what stays is a prefix.
        cluster = cluster.gather(1, order)
        prefix = (cluster[:, :k] != cluster[:, k : k + 1]).sum(1)
        kept = torch.where(available > k, prefix, kept)
    mask = torch.arange(k, device=values.device) < kept.unsqueeze(1)
    fill = (0, max(0, k - size))
    final = F.pad(merged.gather(1, order)[:, :k], fill).masked_fill(~mask, 0.0)
    index = F.pad(order[:, :k], fill).masked_fill(~mask, 0)
    beyond = (column >= kept.unsqueeze(1)) & (column < available.unsqueeze(1))
    accepted = torch.empty_like(present).scatter_(1, order, ~beyond)
    across = (accepted[:, 1:] != accepted[:, :-1]) & present[:, 1:]
    gap = F.pad(merged.diff(dim=1).masked_fill(~across, torch.inf), (1, 0), value=torch.inf).amin(1)
    return Selection(final, mask, index, available, merged, accepted, gap)


class Cut(NamedTuple):
    """How close values count as equal, [B], the cut in whole eigenspaces, and that asked for: the same unless raw."""

    tolerance: Tensor
    whole: Selection
    final: Selection


def cut(
    values: Tensor, errors: Tensor, count: Tensor, settings: SpectrumSettings, known_zeros: int = 0, floor: float = 0.0
) -> Cut:
    """Which of each row's ``count`` [B] ascending values [B, m], known up to ``errors`` [B, m], are kept.

    The tolerance is ten times the largest of the errors of the pairs at stake, the first k + 1 besides ``known_zeros``
    that are dropped, and at least ``floor``. It grows where the mean of a cluster lies further from its members than
    the gap allows: the gap is none then.
    """
    column = torch.arange(values.shape[1], device=values.device)
    at_stake = column < count.unsqueeze(1)
    if settings.by_magnitude:
        largest_first = values.abs().masked_fill(~at_stake, -1.0).argsort(dim=1, descending=True, stable=True)
        at_stake = torch.zeros_like(at_stake).scatter_(1, largest_first[:, : settings.k + 1], True) & at_stake
    else:
        at_stake = at_stake & (column <= settings.k + (known_zeros if settings.drops_zeros else 0))
    tolerance = CLUSTER_TOLERANCE * F.pad(errors.masked_fill(~at_stake, 0.0), (0, 1)).amax(1)
    tolerance = tolerance.clamp(min=floor)
    while True:
        chosen = select(values, count, settings, tolerance, whole=True)
        unresolved = chosen.residual(values, errors) > RESIDUAL_PER_GAP * chosen.gap
        if not bool(unresolved.any()):
            break
        tolerance = torch.where(unresolved, 4.0 * tolerance, tolerance)
    raw = settings.truncation == "raw"
    return Cut(tolerance, chosen, select(values, count, settings, tolerance, whole=False) if raw else chosen)
