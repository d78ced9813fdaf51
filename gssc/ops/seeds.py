"""Seeds of dropout in kernels: drawn on the device, in one launch for many places."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gssc.checks import check_shape, fail
from gssc.ops.triton_support import HAS_TRITON

SEED_WORDS = 4  # two are used; four keep rows of a table of seeds aligned


def new_seeds(count: int, device: torch.device) -> Tensor:
    """Seeds of dropout [count, 4], drawn on the device by its default generator in one launch."""
    return torch.randint(-(2**31), 2**31, (count, SEED_WORDS), dtype=torch.int32, device=device)


def dropout_seeds(modules: Sequence[nn.Module], device: torch.device) -> dict[nn.Module, Tensor]:
    """A seed for every module; none where no kernels run, whose dropout draws otherwise."""
    if device.type != "cuda" or not HAS_TRITON:
        return {}
    return dict(zip(modules, new_seeds(len(modules), device).unbind(), strict=True))


def check_seed(seed: Tensor | None, needed: bool) -> None:
    """Fail where dropout has no seed, or something else."""
    if needed and seed is None:
        fail("seed", "a seed from new_seeds, for dropout", "None")
    if seed is not None:
        check_shape("seed", seed, SEED_WORDS)
