"""Features scaled by degree with PyTorch's ops: the judge, and what runs on a CPU."""

import torch
from torch import Tensor


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor) -> Tensor:
    """X ⊙ (a + b log(1 + d)), [N, C]."""
    log_degree = torch.log1p(degree.to(x.dtype)).unsqueeze(1)
    return x * (scale + log_scale * log_degree)
