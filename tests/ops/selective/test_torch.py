import pytest
import torch
from batches import SIZES, selective_inputs

from gssc import ops
from gssc.testing import assert_matches_reference

NAMES = ("dv", "q", "k", "sq", "sk")


def call(backend, **options):
    """The op as a function of named tensors, weights among them, so that every gradient is compared."""

    def function(**inputs):
        weights = {name: inputs.pop(name) for name in NAMES if name in inputs}
        return ops.selective_gssc_conv(**inputs, weights=weights, backend=backend, **options)

    return function


@pytest.mark.usefixtures("float64", "poisoned")
@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("sizes", [SIZES["ragged"], [9], [4, 4], [0, 0], []], ids=str)
def test_matches_naive(sizes, shared, normalize):
    inputs = selective_inputs(sizes, 6, 3)
    options = {"shared": shared, "normalize": normalize}
    assert_matches_reference(call("torch", **options), call("naive", **options), inputs, tolerance=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("part", ["x_o", "x_s"])
def test_one_term_alone_matches_naive(part):
    inputs = selective_inputs([5, 1, 7], 4, 3)
    inputs.pop(part)
    options = {part: None}
    assert_matches_reference(call("torch", **options), call("naive", **options), inputs, tolerance=1e-10)


@pytest.mark.usefixtures("float64")
def test_differentiable_twice():
    inputs = selective_inputs([2, 3], 2, 2)
    tensors = {name: v.requires_grad_() for name, v in inputs.items() if v.is_floating_point()}

    def function(*values):
        return call("torch", normalize=True)(**dict(zip(tensors, values, strict=True)), ptr=inputs["ptr"])

    assert torch.autograd.gradcheck(function, tuple(tensors.values()))
    assert torch.autograd.gradgradcheck(function, tuple(tensors.values()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phi": torch.zeros(2, 2, 4)}, r"phi: expected shape \[2, 2, 3\], got \[2, 2, 4\]"),
        ({"pair_gains": torch.zeros(2, 1, 3)}, r"pair_gains: expected shape \[2, 2, 3\]"),
        ({"x_o": torch.zeros(1, 3)}, r"x_o: expected shape \[5, 3\], got \[1, 3\]"),
        ({"weights": {}}, r"weights: expected an entry 'dv'"),
        ({"x_o": None, "x_s": None}, "x_o: expected a tensor"),
    ],
)
def test_bad_input(change, message):
    inputs = selective_inputs([2, 3], 2, 3)
    arguments = {"weights": {name: inputs.pop(name) for name in NAMES}, **inputs}
    with pytest.raises(ValueError, match=message):
        ops.selective_gssc_conv(**{**arguments, **change})
