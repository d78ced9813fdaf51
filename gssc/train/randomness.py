"""Random numbers of a run as a function of its seed and its position: a resumed run needs no generator's state."""

import torch
from torch import Tensor


def shuffled(graphs: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch: a function of seed and epoch alone, so that a resumed run needs no state of a sampler."""
    return torch.randperm(graphs, generator=torch.Generator().manual_seed(mix(seed, epoch)))


def mix(*numbers: int) -> int:
    """One 63-bit seed from several small numbers (the finaliser of splitmix64, applied after each)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) % 2**64
        state ^= state >> 31
    return state >> 1


def seed_step(seed: int, epoch: int, step: int, rank: int = 0) -> None:
    """Seed the global generators, from which dropout draws, for one step."""
    torch.manual_seed(mix(seed, 1, epoch, step, rank))
