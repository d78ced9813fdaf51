"""Number, mean and centred second moment of rows: masked, merged, and reduced over processes.

A set of rows [N, C] is summarised by (n, μ, M) with M = Σ (x - μ)², centred before it is squared, so that a large mean
costs no digits. Sets merge without a second look at their rows (Chan, Golub and LeVeque):

    n = Σ n_r,   μ = Σ n_r μ_r / n,   M = Σ M_r + n_r (μ_r - μ)²

Everything stays on the device, the host never reads n; in one process everything is differentiable.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.halo import begin_all_reduce


class Moments(NamedTuple):
    """Of one set: n [], μ [C], M [C]. Of R sets, stacked: n [R, 1], μ [R, C], M [R, C]."""

    n: Tensor
    mean: Tensor
    squares: Tensor


def row_moments(x: Tensor, mask: Tensor | None = None) -> Moments:
    """Moments of the rows of x [N, C] that ``mask`` [N] leaves; all zero where there is none."""
    if mask is None:
        mean = x.sum(0) / max(1, x.shape[0])
        return Moments(x.new_full((), x.shape[0]), mean, (x - mean).square().sum(0))
    n, real = mask.sum().to(x.dtype), mask.unsqueeze(1)
    mean = torch.where(real, x, 0.0).sum(0) / n.clamp(min=1)
    return Moments(n, mean, torch.where(real, x - mean, 0.0).square().sum(0))


def merge_moments(sets: Moments) -> Moments:
    """Moments of the union of stacked sets."""
    n = sets.n.sum()
    mean = (sets.n * sets.mean).sum(0) / n.clamp(min=1)
    return Moments(n, mean, (sets.squares + sets.n * (sets.mean - mean).square()).sum(0))


def joined_moments(one: Moments, other: Moments) -> Moments:
    """Moments of the union of two sets."""
    n, mean, squares = (torch.stack(pair) for pair in zip(one, other, strict=True))
    return merge_moments(Moments(n.unsqueeze(1), mean, squares))


@torch.compiler.disable  # type: ignore[untyped-decorator]
def moments_over_ranks(moments: Moments, group: dist.ProcessGroup | None) -> Callable[[], Moments]:
    """What waits for the moments of the rows of all processes: the same bits on each of them; without derivative."""
    row = torch.cat([moments.n.view(1), moments.mean, moments.squares])
    ranks, rank = dist.get_world_size(group), dist.get_rank(group)
    # A sum in which each process fills its own row: one collective for all three, and adding zeros rounds nothing.
    gathered = F.pad(row.detach().unsqueeze(0), (0, 0, rank, ranks - rank - 1))
    total = begin_all_reduce(gathered, group)
    return lambda: merge_moments(Moments(*total().tensor_split([1, 1 + moments.mean.shape[0]], dim=1)))
