"""The kernels against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch
from batches import SIZES, make_ptr

from gssc import ops
from gssc.ops.graph_sums import torch as by_torch
from gssc.ops.graph_sums import triton as by_triton
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TILES = [40, 0, 33, 1]


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 32 nodes, so that small graphs have several."""
    monkeypatch.setattr(by_triton, "LEAST", 32)
    monkeypatch.setattr(by_triton, "TILES", 1000)


def make(sizes, k, c, pairs=False):
    nodes, graphs = sum(sizes), len(sizes)
    tensors = {
        "vectors": torch.randn(nodes, k) / max(max(sizes, default=1), 1) ** (0.25 if pairs else 0.5),
        "x": torch.randn(nodes, c),
        "state": torch.randn(graphs, k, k, c) if pairs else torch.randn(graphs, k, c),
        "ptr": make_ptr(sizes),
    }
    return {name: value.to(DEVICE) for name, value in tensors.items()}


def positional(module, name):
    return lambda **tensors: getattr(module, name)(*tensors.values())


def check(sizes, k, c):
    for pairs in (False, True):
        inputs = make(sizes, k, c, pairs)
        state, prefix = inputs.pop("state"), "pairs_" if pairs else ""
        functions = [positional(module, f"{prefix}to_state") for module in (by_triton, by_torch)]
        assert_matches_reference(*functions, inputs, tolerance=1e-5)
        functions = [positional(module, f"{prefix}from_state") for module in (by_triton, by_torch)]
        inputs = {"vectors": inputs["vectors"], "state": state, "ptr": inputs["ptr"]}
        assert_matches_reference(*functions, inputs, tolerance=1e-5)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_matches_torch(sizes):
    check(sizes, 3, 5)


@pytest.mark.parametrize(("k", "c"), [(7, 5), (1, 70)])
def test_graphs_of_several_tiles(small_tiles, k, c):
    check(TILES, k, c)


@pytest.mark.parametrize(("k", "c"), [(9, 1), (0, 3), (3, 0)])
def test_odd_widths(k, c):
    check([9, 4], k, c)


def test_results_repeat_bit_by_bit_and_nothing_is_stored_in_half_precision(small_tiles):
    inputs = make(TILES, 7, 5)
    vectors, x, ptr = inputs["vectors"], inputs["x"], inputs["ptr"]
    for function in (by_triton.to_state, by_triton.pairs_to_state):
        assert torch.equal(function(vectors, x, ptr), function(vectors, x, ptr))
    half = ops.to_state(vectors.bfloat16(), x.bfloat16(), ptr, backend="triton")
    assert half.dtype == torch.float32
    assert_close(half, by_torch.to_state(vectors.bfloat16(), x.bfloat16(), ptr), tolerance=1e-5)


def test_differentiable_twice():
    inputs = make([4, 0, 3], 2, 3, pairs=True)
    vectors, x = (inputs[name].requires_grad_() for name in ("vectors", "x"))
    found = []
    for module in (by_triton, by_torch):
        loss = module.pairs_to_state(vectors, x, inputs["ptr"]).square().sum()
        first = torch.autograd.grad(loss, (vectors, x), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), (vectors, x)))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


@pytest.mark.parametrize("pairs", [False, True])
def test_opcheck(pairs):
    inputs = make([2, 0, 3], 2, 4, pairs)
    vectors, x, ptr = inputs["vectors"].requires_grad_(), inputs["x"].requires_grad_(), inputs["ptr"]
    torch.library.opcheck(torch.ops.gssc.to_state_triton.default, (vectors, x, ptr, pairs))
    state = (inputs["state"].flatten(1, 2) if pairs else inputs["state"]).detach().requires_grad_()
    torch.library.opcheck(torch.ops.gssc.from_state_triton.default, (vectors, state, ptr, pairs))


def test_dispatch():
    made = make([3, 4], 2, 3)
    vectors, x, state, ptr = (value.cpu() for value in made.values())
    assert torch.equal(ops.to_state(vectors, x, ptr), by_torch.to_state(vectors, x, ptr))
    assert torch.equal(ops.from_state(vectors, state, ptr), by_torch.from_state(vectors, state, ptr))
    assert_close(ops.to_state(vectors, x, ptr, backend="naive"), by_torch.to_state(vectors, x, ptr), tolerance=1e-5)
    for function in (ops.to_state, partial(ops.to_state, backend="triton")):
        with pytest.raises(ValueError, match=r"x: expected shape \[7, \*\]"):
            function(vectors, x[1:], ptr)
    with pytest.raises(ValueError, match=r"state: expected shape \[2, 2, \*\]"):
        ops.from_state(vectors, state[1:], ptr)
    with pytest.raises(ValueError, match="vectors: expected float32, bfloat16 or float16 for backend='triton'"):
        ops.to_state(made["vectors"].double(), made["x"], made["ptr"], backend="triton")
