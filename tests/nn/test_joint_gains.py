import pytest
import torch

from gssc import GSSConv
from gssc.nn.gssconv import joint_gains
from gssc.ops import conv as conv_op
from gssc.ops.conv import joint_frequency_gains
from gssc.testing import assert_close


def alone(convolutions, phi):
    """Gains as each convolution makes them: of global terms, then of self terms."""
    pairs = [conv.gains(phi) for conv in convolutions]
    return [a for a, _ in pairs] + [a_s for _, a_s in pairs if a_s is not None]


def assert_same(together, convolutions, phi):
    """The same gains, and the same gradients of φ and of all weights that make them."""
    expected = alone(convolutions, phi)
    leaves = [phi, *(conv.get_parameter(f"lin_{n}.weight") for conv in convolutions for n in ("q", "k"))]
    if convolutions[0].self_term:
        leaves += [conv.get_parameter(f"lin_{n}.weight") for conv in convolutions for n in ("sq", "sk")]
    assert len(together) == len(expected)
    for part, own in zip(together, expected, strict=True):
        assert part.is_contiguous()
        assert_close(part, own)
    gradients = [torch.autograd.grad(sum((part**2).sum() for part in parts), leaves) for parts in (together, expected)]
    for actual, own in zip(*gradients, strict=True):
        assert_close(actual, own)


def some(**settings):
    convolutions = [GSSConv(6, 4, **settings) for _ in range(3)]
    return convolutions, torch.randn(2, 5, 4, requires_grad=True)


def test_forms_of_all_pairs_give_what_eq_4_prints(float64):
    convolutions, phi = some(kernel="shared", self_term=False)
    together = joint_frequency_gains(phi, [(conv.lin_q, conv.lin_k) for conv in convolutions], True)
    assert_same(together, convolutions, phi)
    for conv, part in zip(convolutions, together, strict=True):
        assert_close(part, (conv.lin_q(phi) * conv.lin_k(phi)).sum(-1, keepdim=True))


@pytest.mark.parametrize("self_term", [True, False])
def test_gains_of_all_layers_go_to_their_layers(float64, self_term):
    convolutions, phi = some(kernel="shared", self_term=self_term)
    together = joint_gains(convolutions, phi)
    assert list(together) == convolutions
    assert all((self_gains is not None) == self_term for _, self_gains in together.values())
    gains_, self_gains = zip(*together.values(), strict=True)
    assert_same([*gains_, *(part for part in self_gains if part is not None)], convolutions, phi)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="on a CPU each layer makes its own")
@pytest.mark.parametrize("self_term", [True, False])
def test_gains_per_channel_of_all_layers(float64, self_term, monkeypatch):
    convolutions, phi = some(kernel="channel", self_term=self_term)
    convolutions, phi = [conv.cuda() for conv in convolutions], phi.detach().cuda().requires_grad_()
    gains_, self_gains = zip(*joint_gains(convolutions, phi).values(), strict=True)
    assert_same([*gains_, *(part for part in self_gains if part is not None)], convolutions, phi)
    monkeypatch.setattr(conv_op, "LARGEST", 100)
    assert joint_gains(convolutions, phi) == {}


def test_not_where_it_does_not_pay_or_does_not_apply():
    phi = torch.randn(2, 5, 4)
    assert joint_gains([], phi) == {}
    assert joint_gains([torch.nn.Identity()], phi) == {}
    assert joint_gains([GSSConv(4, selective=True)], phi) == {}
    assert joint_gains([GSSConv(4, kernel="channel")], phi) == {}  # on a CPU
    shared = GSSConv(4, kernel="shared")
    assert list(joint_gains([shared], phi)) == [shared]
    assert joint_gains([shared, GSSConv(4)], phi) == {}
    assert joint_gains([shared, GSSConv(5, 4, kernel="shared")], phi) == {}
    shared.lin_sk.register_forward_hook(lambda *args: None)
    assert joint_gains([shared], phi) == {}
