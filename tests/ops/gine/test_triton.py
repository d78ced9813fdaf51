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
NAIVE, EAGER, FUSED = (partial(ops.gine_messages, backend=backend) for backend in ("naive", "eager", "fused"))


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
    assert_matches_reference(partial(FUSED, **fixed), partial(NAIVE, **fixed), inputs, tolerance=1e-5)
    assert_matches_reference(partial(EAGER, **fixed), partial(NAIVE, **fixed), inputs, tolerance=1e-5)


def test_no_nodes():
    assert FUSED(**make("no nodes", 5)).shape == (0, 5)


@pytest.mark.parametrize("channels", [1, 32, 96, 140])
def test_widths_and_shares(channels, monkeypatch):
    """Programs with several nodes, several blocks of channels, blocks that end beyond the last channel."""
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    assert_matches_reference(FUSED, EAGER, make("random", channels), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    inputs = make("star", 8)
    half = {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
    out = FUSED(**half)
    assert out.dtype == dtype
    wide = {name: value.double() if value.is_floating_point() else value for name, value in half.items()}
    assert_close(out.double(), EAGER(**wide), tolerance=5e-3)


def test_edges_that_need_no_gradient():
    inputs = make("random", 5)
    x = inputs["x"].requires_grad_()
    (found,) = torch.autograd.grad(FUSED(**inputs).square().sum(), x)
    (expected,) = torch.autograd.grad(EAGER(**inputs).square().sum(), x)
    assert_close(found, expected, tolerance=1e-5)


def test_differentiable_twice():
    inputs = make("random", 3)
    found = []
    for function in (FUSED, EAGER):
        leaves = [inputs[name].detach().clone().requires_grad_() for name in ("x", "edge_attr")]
        first = torch.autograd.grad(function(*leaves, inputs["edge_index"]).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_results_repeat_bit_by_bit():
    inputs = make("star", 5)
    assert torch.equal(FUSED(**inputs), FUSED(**inputs))


def test_opcheck():
    inputs = make("random", 3)
    plan = ops.edge_plan(inputs["edge_index"], inputs["x"].shape[0])
    tensors = (inputs["x"].requires_grad_(), inputs["edge_attr"].requires_grad_(), inputs["edge_index"], *plan)
    torch.library.opcheck(torch.ops.gssc.gine_fused.default, tensors)


def test_bad_input():
    inputs = make("random", 3)
    with pytest.raises(ValueError, match=r"edge_attr: expected shape \[12, 3\], got \[1, 3\]"):
        FUSED(**{**inputs, "edge_attr": torch.ones(1, 3)})
    with pytest.raises(ValueError, match="backend: expected one of 'auto'"):
        ops.gine_messages(**inputs, backend="fast")
