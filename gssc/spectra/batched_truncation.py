"""`truncate` for a bucket of graphs at once: the same rules on [B, m] tensors, without a loop over graphs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gssc.spectra.truncation import Truncation, ZeroModes


@dataclass(frozen=True)
class Selection:
    """Which pairs of a bucket are kept.

    ``values [B, K]`` and ``mask [B, K]`` (True = valid) are final; ``index [B, K]`` names the eigenvector of each
    kept pair (anything where masked). ``available [B]`` counts the pairs there were to choose from, ``gap [B]`` is the
    distance from the last kept to the first dropped value, infinite where nothing was dropped or kept.
    """

    values: Tensor
    index: Tensor
    mask: Tensor
    available: Tensor
    gap: Tensor


def merge_clusters_batched(values: Tensor, count: Tensor, tolerance: Tensor) -> tuple[Tensor, Tensor]:
    """Cluster means in place of ascending ``values`` [B, m], and each value's cluster number within its row.

    Row b has ``count[b]`` values (what follows is padding, in clusters of its own) and its own ``tolerance[b]``.
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


def magnitude_order_batched(values: Tensor, count: Tensor, tolerance: Tensor) -> Tensor:
    """Row-wise indices by |λ| descending, + before -, magnitudes within ``tolerance`` being ties; padding last."""
    padding = torch.arange(values.shape[1], device=values.device) >= count.unsqueeze(1)
    magnitude = values.abs().masked_fill(padding, torch.inf)
    ascending = magnitude.argsort(dim=1, stable=True)
    # Infinite padding would make the differences NaN; its clusters are not looked at.
    _, group = merge_clusters_batched(magnitude.gather(1, ascending).nan_to_num(posinf=0.0), count, tolerance)
    rank = torch.empty_like(group).scatter_(1, ascending, group)
    key = -3 * rank - values.sign().long()
    return key.masked_fill(padding, torch.iinfo(torch.long).max).argsort(dim=1, stable=True)


def select_batched(
    values: Tensor,
    count: Tensor,
    k: int,
    *,
    tolerance: Tensor,
    by_magnitude: bool = False,
    zero_modes: ZeroModes = "keep",
    truncation: Truncation = "eigenspace",
) -> Selection:
    """The first ``k`` of each row's ``count`` ascending eigenvalues by the rules of `truncate`."""
    rows, size = values.shape
    values, cluster = merge_clusters_batched(values, count, tolerance)
    available, order = count, None
    if by_magnitude:
        order = magnitude_order_batched(values, count, tolerance)
    elif zero_modes == "drop":
        padding = torch.arange(size, device=values.device) >= count.unsqueeze(1)
        left_out = (values == 0.0) | padding
        order, available = left_out.long().argsort(dim=1, stable=True), size - left_out.sum(1)
    if order is not None:
        values, cluster = values.gather(1, order), cluster.gather(1, order)
    kept = available.clamp(max=k)
    if truncation == "eigenspace" and size > k:
        # Members of one cluster stand side by side in every order, so that what stays is a prefix.
        whole = (cluster[:, :k] != cluster[:, k : k + 1]).sum(1)
        kept = torch.where(available > k, whole, kept)
    gap = torch.full_like(tolerance, torch.inf)
    if size:
        last = values.gather(1, (kept - 1).clamp(min=0).unsqueeze(1))
        following = values.gather(1, kept.clamp(max=size - 1).unsqueeze(1))
        gap = torch.where((kept > 0) & (kept < available), (following - last).abs().squeeze(1), gap)
    mask = torch.arange(k, device=values.device) < kept.unsqueeze(1)
    width = min(k, size)
    final = values.new_zeros(rows, k)
    final[:, :width] = values[:, :width].masked_fill(~mask[:, :width], 0.0)
    index = torch.arange(k, device=values.device).expand(rows, k)
    if order is not None:
        index = index.clone()
        index[:, :width] = order[:, :width]
    return Selection(final, index, mask, available, gap)


def gather_rows(rows: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """Rows ``index [B, K]`` of each matrix of ``rows`` [B, m, n] as [B, K, n], zero where ``mask`` is False."""
    batch, size, _ = rows.shape
    start = size * torch.arange(batch, device=rows.device).unsqueeze(1)
    flat = (start + index.clamp(0, size - 1)).reshape(-1)
    picked = rows.reshape(batch * size, -1).index_select(0, flat)
    return picked.view(*index.shape, -1).mul_(mask.unsqueeze(2).to(rows.dtype))
