"""The kernels for small graphs against the definition; through the interpreter where there is no GPU."""

import pytest
import torch
from batches import selective_inputs

from gssc import ops
from gssc.ops.selective import triton as by_triton
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("dv", "q", "k", "sq", "sk")


def make(sizes, k, c):
    """Inputs, and vectors and ptr apart from them: P has no gradient here."""
    inputs = selective_inputs(sizes, k, c)
    inputs = {name: (value / c**0.5 if name in NAMES else value).to(DEVICE) for name, value in inputs.items()}
    assert by_triton.fits(inputs["x"], inputs["vectors"], inputs["ptr"], shared=False)
    return inputs, {name: inputs.pop(name) for name in ("vectors", "ptr")}


def by_kernels(fixed, x_o=None, x_s=None, normalize=True, **inputs):
    weights = {name: inputs.pop(name) for name in NAMES if name in inputs}
    return ops.selective_gssc_conv(
        x_o=x_o, x_s=x_s, weights=weights, normalize=normalize, backend="triton", **inputs, **fixed
    )


def by_definition(fixed, backend="naive", x_o=None, x_s=None, normalize=True, **inputs):
    """In float64."""
    x_o, x_s = (None if part is None else part.double() for part in (x_o, x_s))
    inputs = {name: value.double() for name, value in inputs.items()}
    weights = {name: inputs.pop(name) for name in NAMES if name in inputs}
    fixed = {"vectors": fixed["vectors"].double(), "ptr": fixed["ptr"]}
    out = ops.selective_gssc_conv(
        x_o=x_o, x_s=x_s, weights=weights, normalize=normalize, backend=backend, **inputs, **fixed
    )
    return out.float()


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize(
    ("sizes", "k", "c"), [([7, 0, 1, 13], 5, 3), ([40, 3], 17, 2), ([70], 33, 1), ([2, 3], 1, 4)], ids=str
)
def test_matches_naive(sizes, k, c, normalize):
    inputs, fixed = make(sizes, k, c)
    assert_matches_reference(
        lambda **tensors: by_kernels(fixed, normalize=normalize, **tensors),
        lambda **tensors: by_definition(fixed, normalize=normalize, **tensors),
        inputs,
        tolerance=1e-4,
    )


@pytest.mark.parametrize("left_out", [("x_o", "q", "k"), ("x_s", "sq", "sk")], ids=["self", "global"])
def test_one_term_alone_matches_naive(left_out):
    inputs, fixed = make([5, 0, 33], 4, 3)
    for name in left_out:
        inputs.pop(name)
    assert_matches_reference(
        lambda **tensors: by_kernels(fixed, **tensors),
        lambda **tensors: by_definition(fixed, **tensors),
        inputs,
        tolerance=1e-4,
    )


def test_differentiable_twice_where_inputs_depend_on_each_other():
    inputs, fixed = make([4, 0, 3], 2, 3)
    found = []
    for function in (by_kernels, by_definition):
        leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
        leaves.pop("x_o")
        loss = function(fixed, **leaves, x_o=leaves["x"]).sin().sum()
        first = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
        found.append([*first, *torch.autograd.grad(sum(g.square().sum() for g in first), list(leaves.values()))])
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_products_in_half_precision_as_autocast_has_them():
    inputs, fixed = make([9, 12], 6, 8)
    leaves = {name: value.requires_grad_() for name, value in inputs.items()}
    with torch.autocast(DEVICE, torch.bfloat16):
        out = by_kernels(fixed, **{**leaves, "x_o": leaves["x_o"].bfloat16()})
    assert out.dtype == torch.float32
    exact = by_definition(fixed, **leaves)
    assert 0 < (out - exact).norm() < 0.02 * exact.norm()
    for name, actual, expected in zip(
        leaves, *(torch.autograd.grad(h.sum(), list(leaves.values())) for h in (out, exact)), strict=True
    ):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() < 0.03 * expected.norm(), name


def test_results_repeat_bit_by_bit():
    inputs, fixed = make([9, 40], 5, 3)
    leaves = [value.requires_grad_() for value in inputs.values()]
    runs = []
    for _ in range(2):
        out = by_kernels(fixed, **inputs)
        runs.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    assert all(torch.equal(first, second) for first, second in zip(*runs, strict=True))


def test_opcheck():
    inputs, fixed = make([2, 0, 3], 2, 4)
    tensors = {name: value.requires_grad_() for name, value in inputs.items()}
    turns = torch.cat([tensors[name] for name in ("q", "k", "sq", "sk")]).detach().requires_grad_()
    x, x_o, x_s, phi, pair_gains, dv = (tensors[name] for name in ("x", "x_o", "x_s", "phi", "pair_gains", "dv"))
    arguments = (x, x_o, x_s, phi, pair_gains, dv, turns, fixed["vectors"], fixed["ptr"], True, torch.float32)
    torch.library.opcheck(torch.ops.gssc.select.default, arguments)


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole():
    torch._dynamo.reset()
    compiled = torch.compile(by_kernels, backend="aot_eager", fullgraph=True, dynamic=True)
    for sizes in ([5, 3], [4, 0, 9]):
        inputs, fixed = make(sizes, 3, 4)
        leaves = [value.requires_grad_() for value in inputs.values()]
        (actual, *gradients), (expected, *reference) = (
            (out, *torch.autograd.grad(out.sin().sum(), leaves))
            for out in (function(fixed, **inputs) for function in (compiled, by_kernels))
        )
        assert_close(actual, expected, tolerance=1e-6)
        for found, wanted in zip(gradients, reference, strict=True):
            assert_close(found, wanted, tolerance=1e-5)


def test_what_the_kernels_leave_to_the_composition(monkeypatch):
    inputs, fixed = make([5, 7], 3, 4)
    x, vectors, ptr = inputs["x"], fixed["vectors"], fixed["ptr"]
    assert by_triton.fits(x, vectors, ptr, shared=False)
    assert not by_triton.fits(x, vectors, ptr, shared=True)
    assert not by_triton.fits(x, vectors.clone().requires_grad_(), ptr, shared=False)
    assert not by_triton.fits(x, vectors.repeat(1, 30), ptr, shared=False)
    assert not by_triton.fits(x[:0], vectors[:0], ptr * 0, shared=False)
    assert not by_triton.fits(x.repeat(50, 1), vectors.repeat(50, 1), ptr * 50, shared=False)
    monkeypatch.setattr(by_triton, "exporting", lambda: True)
    assert not by_triton.fits(x, vectors, ptr, shared=False)
