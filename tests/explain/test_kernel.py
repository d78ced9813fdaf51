"""The kernel is what the convolution does, for every form of it."""

import pytest
import torch
from explain_cases import FORMS, ONE_NODE, TWO_PARTS, make_case, permuted

from gssc import GSSC, model_inputs
from gssc.explain import kernel_row, self_weight
from gssc.explain.kernel import watch_convolution
from gssc.testing import assert_close

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_is_the_jacobian_of_the_convolution(form):
    """∂h_u/∂x_v of GSSConv with selection fixed = W_out diag(K(u, v)) W_o diag(s_v) + δ_uv diag(K_s) W_s diag(s_u)."""
    model, data = make_case(**form)
    u = 3
    for layer in range(2):
        conv = model.layers[layer].glob
        _, given = watch_convolution(model, data, layer)
        kernel, own = kernel_row(model, data, u, layer), self_weight(model, data, u, layer)
        selecting = given[0].detach()

        def scaled(x, conv=conv, given=given, selecting=selecting):
            """The convolution after degree scaling, with what selects held where it was."""
            mixed = conv.mix(selecting, conv.lin_o(x), None, *given[1:])
            mixed = mixed if conv.lin_out is None else conv.lin_out(mixed)
            return mixed + conv.mix(selecting, None, conv.lin_s(x), *given[1:]) if conv.self_term else mixed

        # Where it was, it is what the module computes.
        seen = []
        hook = conv.register_forward_hook(lambda module, args, out, seen=seen: seen.append(out))
        model.eval()(**model_inputs(data))
        hook.remove()
        assert_close(scaled(given[0]), seen[0])
        jacobian = torch.autograd.functional.jacobian(lambda x: scaled(x)[u], given[0])  # [C, N, C]
        after = torch.eye(8) if conv.lin_out is None else conv.lin_out.weight
        expected = torch.einsum("ac,vc,cb->avb", after, kernel, conv.lin_o.weight)
        if conv.self_term:
            expected[:, u] += own[:, None] * conv.lin_s.weight
        else:
            assert not own.any()
        assert_close(jacobian, expected)


@pytest.mark.parametrize("kernel", ["channel", "shared"])
def test_it_is_a_product_of_eigenvectors_and_gains(kernel):
    model, data = make_case(kernel=kernel)
    conv = model.layers[1].glob
    _, given = watch_convolution(model, data, 1)
    gains = conv.gains(given[1])[0][0].expand(-1, 8)
    assert_close(kernel_row(model, data, 2), torch.einsum("k,kc,vk->vc", data.eigvecs[2], gains, data.eigvecs))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_renumbered_nodes_have_the_same_kernel(form):
    model, data = make_case(**form)
    order, other = permuted(data)
    for layer in range(2):
        expected = kernel_row(model, data, int(order[4]), layer)[order]
        assert_close(kernel_row(model, other, 4, layer), expected)


def test_with_selection_it_depends_on_the_features():
    model, data = make_case(selective=True)
    before = kernel_row(model, data, 3)
    data.x = data.x + 1.0
    assert not torch.allclose(kernel_row(model, data, 3), before)
    fixed, data = make_case()
    before = kernel_row(fixed, data, 3)
    data.x = data.x + 1.0
    assert_close(kernel_row(fixed, data, 3), before)


def test_nothing_passes_between_components():
    model, data = make_case(TWO_PARTS)
    assert kernel_row(model, data, 0)[:4].abs().min() > 1e-9
    assert kernel_row(model, data, 0)[4:].abs().max() < 1e-12


def test_a_graph_of_one_node():
    model, data = make_case(ONE_NODE)
    assert kernel_row(model, data, 0).shape == (1, 8)
    assert torch.isfinite(self_weight(model, data, 0)).all()


def test_the_model_is_left_as_it_was():
    model, data = make_case()
    model.train()
    model.layers[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    kernel_row(model, data, 0)
    assert model.training
    assert not model.layers[0].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model.layers[1].glob._forward_pre_hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_cannot_be_asked():
    model, data = make_case()
    with pytest.raises(ValueError, match=r"^node: expected a node of 0\.\.7, got 8$"):
        kernel_row(model, data, 8)
    with pytest.raises(ValueError, match=r"^layer: expected a layer of 0\.\.1, got 2$"):
        kernel_row(model, data, 0, 2)
    plain = GSSC(1, 8, 1, node_features=3, glob="attention")
    with pytest.raises(ValueError, match=r"^model: expected one with a graph state space convolution.*glob=attention$"):
        kernel_row(plain, data, 0)
