"""X_o and X_s as columns of one tensor, with a bias, against both apart; on a CPU through Triton's interpreter."""

from dataclasses import replace

import pytest
import torch
from batches import conv_inputs
from torch import nn

from gssc import ops
from gssc.ops.conv import triton as by_triton
from gssc.ops.linears import linears
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


def columns(both, vectors, gains, self_gains, bias, ptr):
    x_o, x_s = both.chunk(2, 1)
    return ops.gssc_conv(x_o, x_s, vectors, gains, self_gains, ptr, projection=bias, backend="triton")


def apart(both, vectors, gains, self_gains, bias, ptr):
    x_o, x_s = both.chunk(2, 1)
    return ops.gssc_conv(x_o.contiguous(), x_s.contiguous(), vectors, gains, self_gains, ptr, backend="torch") + bias


def check(inputs, leaves=NAMES, tolerance=2e-5):
    actual = columns(**inputs)
    wide = {name: v.detach().double() if v.is_floating_point() else v for name, v in inputs.items()}
    wide |= {name: wide[name].requires_grad_() for name in leaves}
    expected = apart(**wide)
    assert_close(actual.double(), expected, tolerance=tolerance)
    grad = torch.randn_like(expected)
    gradients = torch.autograd.grad(actual, [inputs[name] for name in leaves], grad.to(actual.dtype))
    for name, gradient, right in zip(
        leaves, gradients, torch.autograd.grad(expected, [wide[n] for n in leaves], grad), strict=True
    ):
        assert_close(gradient.double(), right, f"gradient of {name}", tolerance)


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("sizes", [[], [0], [1], [4, 0, 1, 6]], ids=str)
def test_is_the_sum_of_the_two(sizes, shared):
    check(make(sizes, shared=shared))


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
def test_graphs_of_several_tiles(shared, monkeypatch):
    for name in ("FORWARD", "BACKWARD"):
        tuning = replace(getattr(by_triton, name), rows=16, tiles=1000, least=32, once=0)
        monkeypatch.setattr(by_triton, name, tuning)
    inputs = make([17, 0, 1, 33, 3, 70, 0], shared=shared)
    inputs["vectors"] = inputs["vectors"] / 8
    check(inputs)


def test_gradient_of_the_vectors():
    inputs = make([4, 6])
    inputs["vectors"].requires_grad_()
    check(inputs, (*NAMES, "vectors"))


def test_differentiable_twice():
    results = []
    for function in (columns, apart):
        torch.manual_seed(0)
        inputs = make([4, 6])
        leaves = [inputs[name] for name in NAMES]
        first = torch.autograd.grad(function(**inputs).pow(3).sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
def test_with_its_linears_differentiable_twice(shared):
    """Also through the state PᵀX_o, of which the gradient of the gains is made."""
    inputs = {name: value.to(DEVICE) for name, value in conv_inputs([4, 0, 6], 7, 5, shared).items()}
    first, second = (nn.Linear(5, 5, bias=False, device=DEVICE) for _ in range(2))
    projection = nn.Linear(5, 5, device=DEVICE) if shared else None
    x, vectors, gains, self_gains, ptr = (inputs[n] for n in ("x_o", "vectors", "gains", "self_gains", "ptr"))
    modules = (first, second, *([projection] if shared else []))
    leaves = [x, gains, self_gains, *(p for module in modules for p in module.parameters())]
    results = []
    for backend in ("triton", "torch"):
        leaves[:3] = (leaf.detach().requires_grad_() for leaf in leaves[:3])
        x, gains, self_gains = leaves[:3]
        out = ops.conv_of_linears(x, first, second, vectors, gains, self_gains, ptr, projection, backend)
        gradients = torch.autograd.grad(out.pow(3).sum(), leaves, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in gradients), leaves))
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_gradients_with_a_graph_where_inputs_depend_on_each_other():
    inputs = make([4, 6])
    inputs["self_gains"] = inputs["gains"].sin()
    leaves = [inputs[name] for name in NAMES if name != "self_gains"]
    out = columns(**inputs).pow(3).sum()
    expected = torch.autograd.grad(out, leaves, retain_graph=True)
    for actual, other in zip(torch.autograd.grad(out, leaves, create_graph=True), expected, strict=True):
        assert_close(actual.detach(), other, tolerance=1e-4)


def test_half_features_and_a_wide_bias():
    """As under autocast: the sum is not rounded before the bias is added."""
    inputs = make([4, 6], dtype=torch.bfloat16)
    inputs["bias"] = inputs["bias"].detach().float().requires_grad_()
    assert columns(**inputs).dtype == torch.float32
    check(inputs, tolerance=2e-2)


def test_x_o_is_not_kept_where_it_stands_alone():
    """Memory for large batches: backward reads the state, not the features."""
    inputs = conv_inputs([4, 6], 7, 5)
    leaves = {
        name: v.to(DEVICE).requires_grad_(v.is_floating_point() and name != "vectors") for name, v in inputs.items()
    }
    x_o = leaves.pop("x_o") * 2
    for backend in ("torch", "triton"):
        out = ops.gssc_conv(x_o, **leaves, backend=backend)
        saved = out.grad_fn.saved_tensors if hasattr(out.grad_fn, "saved_tensors") else out.grad_fn._raw_saved_tensors
        assert all(tensor is None or tensor.data_ptr() != x_o.data_ptr() for tensor in saved)


def test_of_two_linears():
    """From one product of x to one gradient of it."""
    inputs = {name: value.to(DEVICE) for name, value in conv_inputs([4, 0, 6], 7, 5).items()}
    first, second = nn.Linear(5, 5, bias=False, device=DEVICE), nn.Linear(5, 5, bias=False, device=DEVICE)
    x, inputs["x_s"] = inputs.pop("x_o"), None
    x.requires_grad_()
    rest = [inputs[name] for name in ("vectors", "gains", "self_gains", "ptr")]
    results = []
    for x_o, x_s in (linears(x, first, second), (first(x), second(x))):
        out = ops.gssc_conv(x_o, x_s, *rest, backend="triton")
        results.append([out, *torch.autograd.grad(out.square().sum(), (x, first.weight, second.weight))])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-5)


def test_opcheck():
    inputs = make([4, 0, 3])
    x_o, x_s = inputs.pop("both").detach().chunk(2, 1)
    rest = [inputs[name] for name in ("vectors", "gains", "self_gains", "bias", "ptr")]
    torch.library.opcheck(
        torch.ops.gssc.conv_triton.default, (x_o.clone().requires_grad_(), x_s.clone().requires_grad_(), *rest)
    )
    torch.library.opcheck(torch.ops.gssc.conv_triton.default, (x_o, x_s, *(t.detach() for t in rest)))
