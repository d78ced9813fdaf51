"""What decides whether kernels are taken."""

import pytest
import torch
from torch import nn

from gssc.ops.triton_support import exporting


class Marked(nn.Module):
    """0 where somebody exports it, else 1."""

    def forward(self, x):
        return x * 0 if exporting() else x * 1


@pytest.mark.parametrize("strict", [True, False])
def test_exporting_is_not_compiling(strict):
    x = torch.ones(2)
    assert not exporting()
    assert torch.equal(torch.compile(Marked(), backend="eager", fullgraph=True)(x), x)
    assert torch.equal(torch.export.export(Marked(), (x,), strict=strict).module()(x), 0 * x)
    assert not exporting()
