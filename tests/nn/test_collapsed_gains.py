import pytest
import torch

from gssc.nn import GSSConv
from gssc.nn.collapsed_gains import collapsed_gains


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("self_term", [True, False])
def test_gains_of_every_layer(self_term):
    convolutions = [GSSConv(6, 5, kernel="shared", self_term=self_term) for _ in range(3)]
    phi = torch.randn(4, 7, 5, requires_grad=True)
    found = collapsed_gains(convolutions, phi)
    weights = [parameter for conv in convolutions for name, parameter in conv.named_parameters()]
    for conv, (gains, self_gains) in zip(convolutions, found, strict=True):
        expected = conv._gains(phi, conv.lin_q, conv.lin_k)
        literal = (conv.lin_q(phi) * conv.lin_k(phi)).sum(-1, keepdim=True)
        torch.testing.assert_close(gains, literal, rtol=0, atol=1e-12)
        sums = [gains.square().sum(), expected.square().sum()]
        if self_term:
            own = conv._gains(phi, conv.lin_sq, conv.lin_sk)
            torch.testing.assert_close(self_gains, own, rtol=0, atol=1e-12)
            sums = [sums[0] + self_gains.square().sum(), sums[1] + own.square().sum()]
        else:
            assert self_gains is None
        gradients = [torch.autograd.grad(s, [phi, *weights], retain_graph=True, allow_unused=True) for s in sums]
        for ours, theirs in zip(*gradients, strict=True):
            if theirs is not None:
                torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("settings", [{"kernel": "channel"}, {"kernel": "shared", "selective": True}])
def test_others_make_their_own(settings):
    assert collapsed_gains([GSSConv(4, **settings)], torch.randn(1, 3, 4)) is None
