import pytest
import torch

from gssc import GSSConv
from gssc.nn import gains
from gssc.testing import assert_close


@pytest.mark.parametrize("kernel", ["shared", "channel"])
@pytest.mark.parametrize("self_term", [True, False])
def test_gains_of_all_layers_are_those_of_each(float64, kernel, self_term):
    convolutions = torch.nn.ModuleList(GSSConv(6, 4, kernel=kernel, self_term=self_term) for _ in range(3))
    phi = torch.randn(2, 5, 4, requires_grad=True)
    together = gains.gains_of_all(list(convolutions), phi)
    alone = [
        (conv._gains(phi, conv.lin_q, conv.lin_k), conv._gains(phi, conv.lin_sq, conv.lin_sk) if self_term else None)
        for conv in convolutions
    ]
    leaves = [phi, *(p for name, p in convolutions.named_parameters() if "_o" not in name and "_s." not in name)]
    gradients = []
    for found in (together, alone):
        flat = [part for pair in found for part in pair if part is not None]
        gradients.append(torch.autograd.grad(sum((part**2).sum() for part in flat), leaves))
    for pair, other in zip(together, alone, strict=True):
        for part, expected in zip(pair, other, strict=True):
            assert (part is None) == (expected is None)
            if part is not None:
                assert part.is_contiguous()
                assert_close(part, expected)
    for actual, expected in zip(*gradients, strict=True):
        assert_close(actual, expected)


def test_not_where_it_does_not_pay_or_does_not_apply(monkeypatch):
    phi = torch.randn(2, 5, 4)
    assert gains.gains_of_all([GSSConv(4, selective=True)], phi) is None
    monkeypatch.setattr(gains, "LARGEST", 100)
    assert gains.gains_of_all([GSSConv(4)], phi) is None
