"""Random numbers of a run as a function of its seed and its position: a resumed run needs no generator's state."""

import numpy as np
import torch
from torch import Tensor

GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def shuffled(graphs: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch: a function of seed and epoch alone, so that a resumed run needs no state of a sampler."""
    return torch.randperm(graphs, generator=torch.Generator().manual_seed(mix(seed, epoch)))


def mix(*numbers: int) -> int:
    """One 63-bit seed from several small numbers (the finaliser of splitmix64, applied after each)."""
    state = 0
    for number in numbers:
        state = _mix_one(state, number)
    return state >> 1


def mix_each(count: int, *numbers: int) -> Tensor:
    """``mix(*numbers, i)`` for i = 0, ..., count - 1."""
    # `mix` of the numbers so far, with the bit that it drops at the end.
    state = 0
    for number in numbers:
        state = _mix_one(state, number)
    values = np.arange(count, dtype=np.uint64) + np.uint64((state + GOLDEN) % 2**64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(FIRST)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(SECOND)
    return torch.from_numpy(((values ^ (values >> np.uint64(31))) >> np.uint64(1)).astype(np.int64))


def _mix_one(state: int, number: int) -> int:
    state = (state + number + GOLDEN) % 2**64
    state = ((state ^ (state >> 30)) * FIRST) % 2**64
    state = ((state ^ (state >> 27)) * SECOND) % 2**64
    return state ^ (state >> 31)


def seed_step(seed: int, epoch: int, step: int, rank: int = 0) -> None:
    """Seed the global generators, from which dropout draws, for one step."""
    torch.manual_seed(mix(seed, 1, epoch, step, rank))
