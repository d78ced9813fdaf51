"""X_o and X_s in one tensor against the two given apart; on the CPU through Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
from batches import conv_inputs

from gssc import ops
from gssc.ops.conv import triton as fused, side_by_side
from gssc.testing import assert_close

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("both", "gains", "self_gains", "bias")


def make(sizes, channels=5, frequencies=7, shared=True, dtype=torch.float32):
    inputs = conv_inputs(sizes, frequencies, channels, shared)
    inputs["both"] = torch.cat([inputs.pop("x_o"), inputs.pop("x_s")], 1)
    inputs["bias"] = torch.randn(channels)
    inputs = {name: v.to(DEVICE, dtype if v.is_floating_point() else v.dtype) for name, v in inputs.items()}
    return {name: v.requires_grad_() if name in NAMES else v for name, v in inputs.items()}


def apart(both, vectors, gains, self_gains, bias, ptr):
    x_o, x_s = both.chunk(2, 1)
    return ops.gssc_conv(x_o, x_s, vectors, gains, self_gains, ptr, backend="eager") + bias


def check(inputs, leaves=NAMES, tolerance=2e-5):
    found = side_by_side.gssc_conv(**inputs)
    wide = {name: v.detach().double() if v.is_floating_point() else v for name, v in inputs.items()}
    wide |= {name: wide[name].requires_grad_() for name in leaves}
    expected = apart(**wide)
    assert_close(found.double(), expected, tolerance=tolerance)
    grad = torch.randn_like(expected)
    gradients = torch.autograd.grad(found, [inputs[name] for name in leaves], grad.to(found.dtype))
    for name, actual, right in zip(
        leaves, gradients, torch.autograd.grad(expected, [wide[n] for n in leaves], grad), strict=True
    ):
        assert_close(actual.double(), right, f"gradient of {name}", tolerance)


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("sizes", [[], [0], [1], [4, 0, 1, 6]], ids=str)
def test_is_the_sum_of_the_two(sizes, shared):
    check(make(sizes, shared=shared))


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
def test_graphs_of_several_tiles(shared, monkeypatch):
    for name in ("FORWARD", "BACKWARD"):
        tuning = replace(getattr(fused, name), rows=16, tiles=1000, least=32, once=0)
        monkeypatch.setattr(fused, name, tuning)
    inputs = make([17, 0, 1, 33, 3, 70, 0], shared=shared)
    inputs["vectors"] = inputs["vectors"] / 8
    check(inputs)


def test_gradient_of_the_vectors():
    inputs = make([4, 6])
    inputs["vectors"].requires_grad_()
    check(inputs, (*NAMES, "vectors"))


def test_differentiable_twice():
    found = []
    for function in (side_by_side.gssc_conv, apart):
        torch.manual_seed(0)
        inputs = make([4, 6])
        leaves = [inputs[name] for name in NAMES]
        first = torch.autograd.grad(function(**inputs).pow(3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_gradients_with_a_graph_where_inputs_depend_on_each_other():
    inputs = make([4, 6])
    inputs["self_gains"] = inputs["gains"].sin()
    leaves = [inputs[name] for name in NAMES if name != "self_gains"]
    out = side_by_side.gssc_conv(**inputs).pow(3).sum()
    expected = torch.autograd.grad(out, leaves, retain_graph=True)
    for actual, other in zip(torch.autograd.grad(out, leaves, create_graph=True), expected, strict=True):
        assert_close(actual.detach(), other, tolerance=1e-4)


def test_half_features_and_a_wide_bias():
    """As under autocast: the sum is not rounded before the bias is added."""
    inputs = make([4, 6], dtype=torch.bfloat16)
    inputs["bias"] = inputs["bias"].detach().float().requires_grad_()
    assert side_by_side.gssc_conv(**inputs).dtype == torch.float32
    check(inputs, tolerance=2e-2)


def test_opcheck():
    inputs = make([4, 0, 3])
    arguments = [inputs[name] for name in ("both", "vectors", "gains", "self_gains", "bias", "ptr")]
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.gssc.conv_side_by_side.default, arguments, test_utils=tests)
