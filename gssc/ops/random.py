"""Dropout as the kernels do it: random bits are a hash of their place and a seed, so that no mask is kept."""

from functools import lru_cache

import torch
from torch import Tensor

LIMIT = 1 << 24  # random numbers are 24 bits wide, so that float32 could hold them
WORD = 0xFFFFFFFF


@lru_cache(maxsize=64)
def threshold(p: float) -> int:
    """Random numbers below it drop an entry: ``p`` in steps of 2⁻²⁴."""
    return min(round(p * LIMIT), LIMIT - 1)


@lru_cache(maxsize=64)
def rescale(p: float) -> float:
    """What kept entries are multiplied by, so that the mean stays: 1 / (1 - p), rounded as a kernel's argument is."""
    return float(torch.tensor(LIMIT / (LIMIT - threshold(p)), dtype=torch.float32))


def kept(seed: Tensor, site: int, rows: int, channels: int, p: float) -> Tensor:
    """Which entries of [N, C] dropout leaves: a hash of their place, of the site, and of two words of a seed."""
    low, high = (word & WORD for word in seed[:2].long().unbind())
    row = torch.arange(rows, device=seed.device)
    column = torch.arange(channels, device=seed.device) * 0x9E3779B9
    by_row = _mixed(row ^ _mixed((low + site * 0x9E3779B9) & WORD))
    bits = _mixed(((by_row.unsqueeze(1) + column) & WORD) ^ high)
    return (bits >> 8) >= threshold(p)


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers in which every bit depends on every other; numbers are held in 64 bits."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & WORD
    x = ((x ^ (x >> 15)) * 0x735A2D97) & WORD
    return x ^ (x >> 15)


def dropped(x: Tensor, seed: Tensor | None, site: int, p: float) -> Tensor:
    """Dropout of x [N, C]; none where there is no seed."""
    if seed is None or p == 0.0:
        return x
    return torch.where(kept(seed, site, x.shape[0], x.shape[1], p), x * rescale(p), 0.0)
