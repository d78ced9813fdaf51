"""Which eigenpairs of a graph are kept: one rule, for one graph and for many at once.

Solvers return rounding noise: sqrt(-1e-17) is NaN, and equal eigenvalues that differ in their last bit get different
gains, which breaks every symmetry of the layer. So values of magnitude up to a tolerance become exactly 0, and every
cluster of eigenvalues that are equal within the tolerance takes its mean. A cut turns the space kept by as much as
error / gap (Davis-Kahan, ``docs/spectra.md``): it lies only in gaps that are far wider than rounding, and where gaps
are narrower the whole cluster of eigenvalues goes. Zero modes known exactly have no error and need no such gap.

Graphs are the rows of tensors [B, m], on any device, and one graph is one row: row b holds ``count[b]`` eigenvalues,
ascending, and anything after them. Zero modes that are known exactly come first, by the first nodes of their
components, whatever the rounding of others: they are what a raw cut through λ = 0 keeps.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

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
# Accuracy of dense solves relative to ‖L‖: LAPACK stays below a third of it. As it is not measured graph by graph, the
# order of nodes, and whether components are solved one by one, do not decide what is kept.
DENSE_ACCURACY = 32.0 * float(np.finfo(np.float64).eps)
# The least gap at a cut: of dense solves relative to ‖L‖, so that rounding, some 1e-15 ‖L‖, turns the space kept by
# less than 1e-9; of all relative to the eigenvalues on its sides, far above the rounding of weights.
DENSE_GAP = 1e-5
RELATIVE_GAP = 1e-6
# Dense solves: values up to this, relative to ‖L‖, are zero. Above it rounding moves sqrt(λ) by less than 1e-9 ‖L‖^½.
DENSE_ZERO = 1e-11


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

    def scaled(self, exponent: int) -> "Spectrum":
        """That of the operator times 2^exponent."""
        about = self.certificate
        names = ("residual", "gap", "tolerance")
        moved: dict[str, Any] = {name: float(np.ldexp(getattr(about, name), exponent)) for name in names}
        return replace(self, values=np.ldexp(self.values, exponent), certificate=replace(about, **moved))


@dataclass(frozen=True)
class Selection:
    """Which pairs of B graphs are kept.

    ``values`` [B, K], ``mask`` [B, K] (True = valid) and ``index`` [B, K], the place of each kept pair among the m
    (0 where masked), are the result; ``available`` [B] counts the pairs that there were to choose from. ``merged``
    [B, m] are all values, cleaned, ``accepted`` [B, m] marks those on the kept side of the cut (zero modes that are
    dropped on request, ``dropped`` [B] in number, included), and ``gap`` [B] is the distance across the cut, from any
    value kept to the nearest one that is not: inf where one side is empty, 0 where it goes through a cluster.
    """

    values: Tensor
    mask: Tensor
    index: Tensor
    available: Tensor
    merged: Tensor
    accepted: Tensor
    gap: Tensor
    dropped: Tensor

    def of_kept(self, numbers: Tensor) -> Tensor:
        """Those of ``numbers`` [B, m] that belong to the pairs kept, [B, K]; zero where masked."""
        return F.pad(numbers, (0, 1)).gather(1, self.index).masked_fill(~self.mask, 0.0)

    def residual(self, values: Tensor, errors: Tensor) -> Tensor:
        """A bound of ‖L p - λ p‖ over the pairs kept, [B], from ``errors`` [B, m] of the ``values`` [B, m] as computed.

        It grows by at most as much as a value moved to the mean of its cluster.
        """
        return self.of_kept(errors + (self.merged - values).abs()).amax(1)

    def turn(self, errors: Tensor) -> Tensor:
        """Bounds of the sine of the angle by which the space kept is turned, [B]: ‖L P - P Λ‖ / gap (Davis-Kahan).

        Λ as computed, of ``errors`` [B, m]; the eigenvalue across the gap lies within its error of what was computed.
        """
        norm = self.of_kept(errors).norm(dim=1)
        known = self.gap - F.pad(errors.masked_fill(self.accepted, 0.0), (0, 1)).amax(1)
        bound = torch.where(norm < known, norm / known, 1.0)
        return bound.masked_fill((norm == 0.0) & (self.gap > 0.0), 0.0)


def merge_clusters(
    values: Tensor, count: Tensor, tolerance: Tensor, zero: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cluster means in place of ascending ``values`` [B, m], and each value's cluster number within its row.

    Neighbours closer than ``tolerance`` [B] are equal; what is within ``zero`` [B] of zero, by default the tolerance,
    is exactly zero. What follows the ``count`` [B] values of a row has clusters of its own.
    """
    rows, size = values.shape
    if values.numel() == 0:
        return values.clone(), torch.zeros_like(values, dtype=torch.long)
    tolerance = tolerance.unsqueeze(1)
    cleaned = values.masked_fill(values.abs() <= (tolerance if zero is None else zero.unsqueeze(1)), 0.0)
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


def magnitude_order(values: Tensor, count: Tensor, tie: Tensor) -> Tensor:
    """Row-wise indices by |λ| descending, + before - where magnitudes are closer than ``tie`` [B]; padding last."""
    padding = torch.arange(values.shape[1], device=values.device) >= count.unsqueeze(1)
    magnitude = values.abs().masked_fill(padding, -torch.inf)
    descending = magnitude.argsort(dim=1, descending=True, stable=True)
    # Infinite padding would make the differences NaN.
    steps = -magnitude.gather(1, descending).nan_to_num(neginf=0.0).diff(dim=1)
    rank = F.pad((steps > tie.unsqueeze(1)).cumsum(1), (1, 0))
    key = 3 * rank - values.sign().long().gather(1, descending)
    key = key.masked_fill(padding.gather(1, descending), torch.iinfo(torch.long).max)
    return descending.gather(1, key.argsort(dim=1, stable=True))


def whole_prefix(order: Tensor, close: Tensor, most: Tensor) -> Tensor:
    """The longest prefix of each row's ``order`` [B, m], at most ``most`` [B], that parts no two ``close`` neighbours.

    ``close`` [B, m - 1] says which neighbours in ascending order must not be parted.
    """
    size = order.shape[1]
    place = torch.arange(size, device=order.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(1, order, place)
    # A prefix of j parts those of which one has a rank below j and the other has not.
    first, last = torch.minimum(rank[:, 1:], rank[:, :-1]) + 1, torch.maximum(rank[:, 1:], rank[:, :-1]) + 1
    parts = torch.zeros(order.shape[0], size + 2, dtype=torch.long, device=order.device)
    parts.scatter_add_(1, first, close.long()).scatter_add_(1, last, -close.long())
    length = torch.arange(size + 2, device=order.device)
    possible = (parts.cumsum(1) == 0) & (length <= most.unsqueeze(1))
    return (possible * length).amax(1)


def select(
    values: Tensor,
    count: Tensor,
    settings: SpectrumSettings,
    tolerance: Tensor,
    whole: bool,
    zeros: Tensor | None = None,
    zero: Tensor | None = None,
    least: Tensor | None = None,
    floor: float = 0.0,
) -> Selection:
    """The first k of each row's ``count`` [B] ascending eigenvalues, padded with zeros to k.

    Those first that are wanted: the largest |λ| or the smallest λ. With fewer than k pairs, all are
    kept; otherwise, if only ``whole`` eigenspaces are wanted, as many as leave a gap of more than ``least`` [B], and of
    more than `RELATIVE_GAP`. ``tolerance`` and ``zero`` are those of `merge_clusters`. ``zeros`` [B] of the values are
    known to be zero: the gap above them need only exceed ``floor``, and where zeros are dropped they alone are. Where
    more came out as zero, these cannot be told apart: then all go that no gap separates from zero.
    """
    k = settings.k
    size = values.shape[1]
    column = torch.arange(size, device=values.device)
    present = column < count.unsqueeze(1)
    merged, cluster = merge_clusters(values, count, tolerance, zero)
    least = torch.zeros_like(tolerance) if least is None else least
    distance, magnitude = values.diff(dim=1), values.abs().masked_fill(~present, 0.0)
    around = torch.maximum(magnitude[:, 1:], magnitude[:, :-1])
    close = (distance <= torch.maximum(least.unsqueeze(1), RELATIVE_GAP * around)) | (cluster.diff(dim=1) == 0)
    is_zero = present & (merged == 0.0)
    if settings.by_magnitude:
        tie = torch.maximum(torch.maximum(least, tolerance), RELATIVE_GAP * F.pad(magnitude, (0, 1)).amax(1))
        # Zeros, which may be dropped, come last.
        order, dropped = magnitude_order(merged, count, tie), is_zero.sum(1) * settings.drops_zeros
        available = count - dropped
    else:
        if zeros is not None:
            exact = is_zero[:, :-1] & ~is_zero[:, 1:] & (is_zero.sum(1) == zeros).unsqueeze(1)
            close &= ~exact | (distance <= floor)
        above = column >= F.pad(is_zero * (column + 1), (0, 1)).amax(1, keepdim=True)
        follows = torch.cat([is_zero[:, :1], close], dim=1)
        near_zero = is_zero | (above & (follows | ~above).cumprod(1).bool())
        eligible = present & ~near_zero if settings.drops_zeros else present
        order, available = (~eligible).long().argsort(dim=1, stable=True), eligible.sum(1)
        dropped = count - available
    kept = available.clamp(max=k)
    if whole and size > k:
        kept = whole_prefix(order, close & present[:, 1:], kept)
    mask = torch.arange(k, device=values.device) < kept.unsqueeze(1)
    beyond = (column >= kept.unsqueeze(1)) & (column < available.unsqueeze(1))
    accepted = torch.empty_like(present).scatter_(1, order, ~beyond)
    if settings.by_magnitude:
        # Those kept come by their magnitudes, of which fewer are ties than where it is decided what is kept.
        order = magnitude_order(merged, count, tolerance)
        order = order.gather(1, (~accepted.gather(1, order)).long().argsort(dim=1, stable=True))
    fill = (0, max(0, k - size))
    final = F.pad(merged.gather(1, order)[:, :k], fill).masked_fill(~mask, 0.0)
    index = F.pad(order[:, :k], fill).masked_fill(~mask, 0)
    across = (accepted[:, 1:] != accepted[:, :-1]) & present[:, 1:]
    apart = distance.masked_fill(cluster.diff(dim=1) == 0, 0.0).masked_fill(~across, torch.inf)
    gap = F.pad(apart, (1, 0), value=torch.inf).amin(1)
    return Selection(final, mask, index, available, merged, accepted, gap, dropped)


class Cut(NamedTuple):
    """How close values count as equal, [B], the cut in whole eigenspaces, and that asked for: the same unless raw."""

    tolerance: Tensor
    whole: Selection
    final: Selection


def cut(
    values: Tensor,
    errors: Tensor,
    count: Tensor,
    settings: SpectrumSettings,
    zeros: Tensor | None = None,
    norm: Tensor | None = None,
    floor: float = 0.0,
) -> Cut:
    """Which of each row's ``count`` [B] ascending values [B, m], known up to ``errors`` [B, m], are kept.

    The one rule, whoever solved. ``zeros`` [B] of the values are known to be zero, and ``norm`` [B] is ‖L‖ where all
    values come from dense solves, whose errors are `DENSE_ACCURACY` · ‖L‖; None otherwise. The tolerance is ten times
    the largest of the errors of the pairs at stake, the first k + 1 besides zeros that are dropped. The least gap is
    `DENSE_GAP` · ‖L‖, the ``floor``, or ten times the largest residual of the pairs at stake, the mean of a cluster in
    place of its members counted in: whichever is largest.
    """
    column = torch.arange(values.shape[1], device=values.device)
    at_stake = column < count.unsqueeze(1)
    if settings.by_magnitude:
        largest_first = values.abs().masked_fill(~at_stake, -1.0).argsort(dim=1, descending=True, stable=True)
        at_stake = torch.zeros_like(at_stake).scatter_(1, largest_first[:, : settings.k + 1], True) & at_stake
    else:
        extra = zeros.unsqueeze(1) if zeros is not None and settings.drops_zeros else 0
        at_stake = at_stake & (column <= settings.k + extra)
    tolerance = CLUSTER_TOLERANCE * F.pad(errors.masked_fill(~at_stake, 0.0), (0, 1)).amax(1)
    norm = torch.zeros_like(tolerance) if norm is None else norm
    zero = torch.maximum(tolerance, DENSE_ZERO * norm)
    merged, _ = merge_clusters(values, count, tolerance, zero)
    moved = (errors + (merged - values).abs()).masked_fill(~at_stake, 0.0)
    least = torch.maximum(F.pad(moved, (0, 1)).amax(1) / RESIDUAL_PER_GAP, DENSE_GAP * norm).clamp(min=floor)
    whole, raw = (
        select(values, count, settings, tolerance, only_whole, zeros, zero, least, floor)
        for only_whole in (True, settings.truncation == "eigenspace")
    )
    return Cut(tolerance, whole, raw)
