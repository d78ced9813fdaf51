"""The module after the global term: before it where it commutes, else called, as where it is not as PyTorch made it."""

from functools import partial

import pytest
import torch
from batches import conv_inputs, selective_inputs
from torch import nn
from twice import assert_same

from gssc import ops

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "channel"])
@pytest.mark.parametrize("self_term", [True, False])
@pytest.mark.parametrize("sizes", [[5], [4, 4, 4], [7, 5, 9], [1, 2, 2], [40, 0, 3]], ids=str)
def test_projection_is_a_linear_after_the_global_term(sizes, self_term, shared):
    inputs = conv_inputs(sizes, 3, 4, shared)
    linear = nn.Linear(4, 4)
    vectors, ptr = inputs.pop("vectors"), inputs.pop("ptr")
    if not self_term:
        inputs |= {"x_s": None, "self_gains": None}
    names = [name for name, value in inputs.items() if value is not None]

    def projected(backend, *tensors):
        given = inputs | dict(zip(names, tensors, strict=False))
        weight, bias = tensors[len(names) :]
        module = nn.Linear(4, 4)
        del module.weight, module.bias
        module.weight, module.bias = weight, bias
        return ops.gssc_conv(**given, vectors=vectors, ptr=ptr, projection=module, backend=backend)

    leaves = [*(inputs[name] for name in names), linear.weight.detach(), linear.bias.detach()]
    assert_same(partial(projected, "torch"), partial(projected, "naive"), leaves)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "channel"])
def test_of_selection(shared):
    inputs, linear = selective_inputs([5, 1, 7], 4, 3), nn.Linear(3, 3)
    weights = {name: inputs.pop(name) for name in ("dv", "q", "k", "sq", "sk")}
    call = partial(ops.selective_gssc_conv, **inputs, weights=weights, shared=shared, projection=linear)
    expected = call(backend="naive")
    torch.testing.assert_close(call(), expected, rtol=1e-10, atol=1e-10)
    alone = partial(ops.selective_gssc_conv, weights=weights, shared=shared)
    literal = linear(alone(**inputs | {"x_s": None})) + alone(**inputs | {"x_o": None})
    torch.testing.assert_close(expected, literal, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "channel"])
def test_a_linear_that_somebody_watches_or_replaced_is_called(shared):
    inputs, linear, calls = conv_inputs([3, 4], 3, 4, shared), nn.Linear(4, 4), []
    plain = ops.gssc_conv(**inputs, projection=linear)
    torch.testing.assert_close(ops.gssc_conv(**inputs, projection=nn.Sequential(linear)), plain)
    linear.register_forward_hook(lambda *args: calls.append(1))
    torch.testing.assert_close(ops.gssc_conv(**inputs, projection=linear), plain)
    assert calls == [1]


def test_without_a_global_term_there_is_nothing_to_project():
    inputs = conv_inputs([3, 4], 3, 4)
    with pytest.raises(ValueError, match="projection: expected None where x_o is"):
        ops.gssc_conv(**{**inputs, "x_o": None, "gains": None}, projection=nn.Linear(4, 4))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "channel"])
@pytest.mark.parametrize("self_term", [True, False])
def test_features_with_a_projection_in_them(shared, self_term):
    inputs = conv_inputs([3, 5], 3, 4, shared)
    x, modules = inputs.pop("x_o"), [nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False), nn.Linear(4, 4)]
    lin_o, lin_s, projection = modules
    if not self_term:
        lin_s, inputs["self_gains"] = None, None
    inputs["x_s"] = lin_s(x) if self_term else None
    expected = ops.gssc_conv(lin_o(x), **inputs, projection=projection, backend="naive")

    def result():
        x_o, inputs["x_s"], rest = ops.conv_features(x, lin_o, lin_s, projection, shared=shared)
        return ops.gssc_conv(x_o, **inputs, projection=rest), rest

    out, rest = result()
    torch.testing.assert_close(out, expected)
    assert rest is (projection.bias if shared else projection)
    calls = []
    for module in (lin_o, projection):
        module.register_forward_hook(lambda *args: calls.append(1))
    torch.testing.assert_close(result()[0], expected)
    assert len(calls) == 2
