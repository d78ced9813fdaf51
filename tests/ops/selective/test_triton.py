"""Selection with Triton's products against the references; through the interpreter where there is no GPU."""

import pytest
import torch
from batches import selective_inputs

from gssc import ops
from gssc.testing import assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("dv", "q", "k", "sq", "sk")


def call(backend, **options):
    def function(**inputs):
        weights = {name: inputs.pop(name) for name in NAMES}
        return ops.selective_gssc_conv(**inputs, weights=weights, backend=backend, **options)

    return function


def make(sizes, k, c):
    inputs = selective_inputs(sizes, k, c)
    return {name: (value / c**0.5 if name in NAMES else value).to(DEVICE) for name, value in inputs.items()}


@pytest.mark.parametrize("normalize", [False, True], ids=["raw", "normalized"])
@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
def test_matches_naive(shared, normalize):
    options = {"shared": shared, "normalize": normalize}
    for sizes in ([7, 0, 1, 13], []):
        inputs = make(sizes, 5, 3)
        assert_matches_reference(call("triton", **options), call("naive", **options), inputs, tolerance=1e-4)


def test_auto_on_the_cpu_is_torch():
    inputs = {name: value.cpu() for name, value in make([5, 7], 3, 4).items()}
    assert torch.equal(call("auto")(**inputs), call("torch")(**inputs))
