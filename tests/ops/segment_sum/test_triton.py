"""The kernel against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch
from batches import SIZES, make_ptr

from gssc import ops
from gssc.ops.graph_sums import triton as fused
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make(sizes, c):
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long))
    tensors = {"x": torch.randn(sum(sizes), c), "batch": batch, "ptr": make_ptr(sizes)}
    return {name: value.to(DEVICE) for name, value in tensors.items()}


@pytest.mark.parametrize("sizes", [*SIZES.values(), [40, 0, 33, 1]], ids=[*SIZES, "tiles"])
def test_matches_naive(sizes, monkeypatch):
    monkeypatch.setattr(fused, "LEAST", 32)
    monkeypatch.setattr(fused, "TILES", 1000)
    for backend in ("fused", "eager"):
        functions = [partial(ops.segment_sum, backend=b) for b in (backend, "naive")]
        assert_matches_reference(*functions, make(sizes, 5), tolerance=1e-5)


def test_many_channels_half_precision_and_repeats():
    inputs = make([40, 9], 140)
    found = ops.segment_sum(**inputs, backend="fused")
    assert torch.equal(found, ops.segment_sum(**inputs, backend="fused"))
    half = ops.segment_sum(inputs["x"].bfloat16(), inputs["batch"], inputs["ptr"], backend="fused")
    assert half.dtype == torch.bfloat16
    assert_close(half.float(), found, tolerance=1e-2)


def test_opcheck():
    inputs = make([2, 0, 3], 4)
    torch.library.opcheck(
        torch.ops.gssc.segment_sum_fused.default, (inputs["x"].requires_grad_(), *list(inputs.values())[1:])
    )


def test_bad_input():
    inputs = make([2, 3], 4)
    with pytest.raises(ValueError, match=r"batch: expected shape \[5\], got \[4\]"):
        ops.segment_sum(inputs["x"], inputs["batch"][1:], inputs["ptr"])
    with pytest.raises(ValueError, match="ptr: expected at least one element"):
        ops.segment_sum(inputs["x"], inputs["batch"], inputs["ptr"][:0])
