import pytest
import torch

from gssc import GSSConv
from gssc.nn import gains
from gssc.testing import assert_close


def alone(convolutions, phi):
    """Gains as each convolution makes them: of global terms, then of self terms."""
    found = [conv._gains(phi, conv.lin_q, conv.lin_k) for conv in convolutions]
    if convolutions[0].self_term:
        found += [conv._gains(phi, conv.lin_sq, conv.lin_sk) for conv in convolutions]
    return found


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


@pytest.mark.parametrize("kernel", ["shared", "channel"])
def test_products_of_all_pairs_are_gains_of_each(float64, kernel):
    convolutions, phi = some(kernel=kernel, self_term=False)
    pairs = [(conv.lin_q.weight, conv.lin_k.weight) for conv in convolutions]
    assert_same(gains.gains_by_products(pairs, phi, kernel == "shared").unbind(), convolutions, phi)


def test_forms_of_all_pairs_give_what_eq_4_prints(float64):
    convolutions, phi = some(kernel="shared", self_term=False)
    pairs = [(conv.lin_q.weight, conv.lin_k.weight) for conv in convolutions]
    found = gains.gains_by_forms(pairs, phi).unbind()
    assert_same(found, convolutions, phi)
    for conv, part in zip(convolutions, found, strict=True):
        assert_close(part, (conv.lin_q(phi) * conv.lin_k(phi)).sum(-1, keepdim=True))


@pytest.mark.parametrize("products", [True, False], ids=["products", "forms"])
@pytest.mark.parametrize("self_term", [True, False])
def test_gains_of_all_layers_go_to_their_layers(float64, monkeypatch, self_term, products):
    if products:  # as on a GPU
        monkeypatch.setattr(gains, "gains_by_forms", lambda pairs, phi: gains.gains_by_products(pairs, phi, True))
    convolutions, phi = some(kernel="shared", self_term=self_term)
    found = gains.gains_of_all(convolutions, phi)
    assert all((own is not None) == self_term for _, own in found)
    together = [each for each, _ in found] + [own for _, own in found if own is not None]
    assert_same(together, convolutions, phi)


def test_not_where_it_does_not_pay_or_does_not_apply(monkeypatch):
    phi = torch.randn(2, 5, 4)
    assert gains.gains_of_all([GSSConv(4, selective=True)], phi) is None
    assert gains.gains_of_all([GSSConv(4, kernel="channel")], phi) is None  # on a CPU
    monkeypatch.setattr(gains, "LARGEST", 100)
    conv = GSSConv(4)
    assert gains.gains_by_products([(conv.lin_q.weight, conv.lin_k.weight)] * 2, phi, False) is None
