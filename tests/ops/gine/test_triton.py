"""The kernels against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch
from edge_batches import EDGES, gine_inputs

from gssc import ops
from gssc.ops.edges import launch
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAIVE, TORCH, TRITON = (partial(ops.gine_messages, backend=backend) for backend in ("naive", "torch", "triton"))


def make(name, channels):
    return {key: value.to(DEVICE) for key, value in gine_inputs(*EDGES[name], channels).items()}


@pytest.mark.parametrize("with_edges", [True, False])
@pytest.mark.parametrize("name", [name for name in EDGES if name != "no nodes"])
def test_matches_naive(name, with_edges):
    inputs = make(name, 5)
    fixed = {}
    if not with_edges:
        del inputs["edge_attr"]
        fixed["edge_attr"] = None
    assert_matches_reference(partial(TRITON, **fixed), partial(NAIVE, **fixed), inputs, tolerance=1e-5)
    assert_matches_reference(partial(TORCH, **fixed), partial(NAIVE, **fixed), inputs, tolerance=1e-5)


def test_no_nodes():
    assert TRITON(**make("no nodes", 5)).shape == (0, 5)


@pytest.mark.parametrize("channels", [1, 32, 96, 140])
def test_widths_and_shares(channels, monkeypatch):
    """Programs with several nodes, several blocks of channels, blocks that end beyond the last channel."""
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    assert_matches_reference(TRITON, TORCH, make("random", channels), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    inputs = make("star", 8)
    half = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    out = TRITON(**half)
    assert out.dtype == dtype
    wide = {name: value.double() if value.is_floating_point() else value for name, value in half.items()}
    assert_close(out.double(), TORCH(**wide), tolerance=5e-3)


def test_edges_that_need_no_gradient():
    inputs = make("random", 5)
    x = inputs["x"].requires_grad_()
    (found,) = torch.autograd.grad(TRITON(**inputs).square().sum(), x)
    (expected,) = torch.autograd.grad(TORCH(**inputs).square().sum(), x)
    assert_close(found, expected, tolerance=1e-5)


def test_differentiable_twice():
    inputs = make("random", 3)
    found = []
    for function in (TRITON, TORCH):
        leaves = [inputs[name].detach().clone().requires_grad_() for name in ("x", "edge_attr")]
        first = torch.autograd.grad(function(*leaves, inputs["edge_index"]).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_results_repeat_bit_by_bit():
    inputs = make("star", 5)
    assert torch.equal(TRITON(**inputs), TRITON(**inputs))


def test_opcheck():
    inputs = make("random", 3)
    plan = ops.edge_plan(inputs["edge_index"], inputs["x"].shape[0])
    features = [inputs[name].requires_grad_() for name in ("x", "edge_attr")]
    for eps in (None, torch.tensor([0.3], device=DEVICE), torch.tensor([0.3], device=DEVICE, requires_grad=True)):
        torch.library.opcheck(torch.ops.gssc.gine_messages.default, (*features, eps, inputs["edge_index"], *plan))


@pytest.mark.parametrize("learned", [True, False])
def test_epsilon(learned):
    """The output, and gradients of both orders, also of ε."""
    inputs = make("random", 3)
    found = []
    for function in (TRITON, NAIVE):
        leaves = [inputs[name].detach().clone().requires_grad_() for name in ("x", "edge_attr")]
        eps = torch.tensor([0.3], device=DEVICE, requires_grad=learned)
        out = function(*leaves, inputs["edge_index"], eps=eps)
        leaves += [eps] if learned else []
        plain = torch.autograd.grad(out.square().sum(), leaves, retain_graph=True)
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        found.append([out, *plain, *first, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)])
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_bad_input():
    inputs = make("random", 3)
    with pytest.raises(ValueError, match=r"edge_attr: expected shape \[12, 3\], got \[1, 3\]"):
        TRITON(**{**inputs, "edge_attr": torch.ones(1, 3)})
    with pytest.raises(ValueError, match="backend: expected one of 'auto'"):
        ops.gine_messages(**inputs, backend="fast")
