"""GCN's sum; the kernel on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch
from edge_batches import EDGES, make_edges

from gssc import ops
from gssc.ops.edges import launch
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAIVE, TORCH, TRITON = (partial(ops.neighbor_sum, backend=backend) for backend in ("naive", "torch", "triton"))


def bagged(x, edge_index):
    """What a CPU does with a plan."""
    return ops.neighbor_sum(x, edge_index, ops.edge_plan(edge_index, x.shape[0]), "torch")


def make(name, channels):
    nodes, pairs = EDGES[name]
    return {"x": torch.randn(nodes, channels, device=DEVICE), "edge_index": make_edges(pairs).to(DEVICE)}


@pytest.mark.parametrize("name", [name for name in EDGES if name != "no nodes"])
def test_matches_naive(name):
    inputs = make(name, 5)
    assert_matches_reference(TRITON, NAIVE, inputs, tolerance=1e-5)
    assert_matches_reference(TORCH, NAIVE, inputs, tolerance=1e-5)
    assert_matches_reference(bagged, NAIVE, inputs, tolerance=1e-5)


@pytest.mark.parametrize("function", [NAIVE, TORCH, TRITON, bagged])
def test_no_nodes(function):
    assert function(**make("no nodes", 5)).shape == (0, 5)


@pytest.mark.parametrize("channels", [1, 32, 96, 140])
def test_widths_and_shares(channels, monkeypatch):
    """Programs with several nodes, several blocks of channels, blocks that end beyond the last channel."""
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    assert_matches_reference(TRITON, TORCH, make("random", channels), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    inputs = make("star", 8)
    inputs["x"] = inputs["x"].to(dtype)
    out = TRITON(**inputs)
    assert out.dtype == dtype
    assert_close(out.double(), TORCH(inputs["x"].double(), inputs["edge_index"]), tolerance=5e-3)


def test_differentiable_twice():
    inputs = make("random", 3)
    found = []
    for function in (TRITON, bagged, NAIVE):
        x = inputs["x"].detach().clone().requires_grad_()
        (first,) = torch.autograd.grad(function(x, inputs["edge_index"]).pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x)[0])
    for actual in found[:2]:
        assert_close(actual, found[2], tolerance=1e-4)


def test_a_plan_at_hand_and_repeated_bits():
    inputs = make("star", 5)
    plan = ops.edge_plan(inputs["edge_index"], 8)
    assert torch.equal(TRITON(**inputs, plan=plan), TRITON(**inputs))


def test_opcheck():
    inputs = make("random", 3)
    plan = ops.edge_plan(inputs["edge_index"], inputs["x"].shape[0])
    tensors = (inputs["x"].requires_grad_(), plan.sources, plan.target_ptr, plan.targets, plan.source_ptr)
    torch.library.opcheck(torch.ops.gssc.neighbor_sum.default, tensors)


def test_bad_input():
    inputs = make("random", 3)
    with pytest.raises(ValueError, match=r"edge_index: expected shape \[2, \*\], got \[12, 2\]"):
        TRITON(inputs["x"], inputs["edge_index"].t())
    with pytest.raises(ValueError, match="backend: expected one of 'auto'"):
        ops.neighbor_sum(**inputs, backend="fast")
