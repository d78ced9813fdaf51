"""The kernel against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch
from batches import SIZES, make_ptr

from gssc import ops
from gssc.ops.graph_sums import triton as by_triton
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
    monkeypatch.setattr(by_triton, "LEAST", 32)
    monkeypatch.setattr(by_triton, "TILES", 1000)
    for backend in ("triton", "torch"):
        functions = [partial(ops.segment_sum, backend=b) for b in (backend, "naive")]
        assert_matches_reference(*functions, make(sizes, 5), tolerance=1e-5)


def test_many_channels_half_precision_and_repeats():
    inputs = make([40, 9], 140)
    found = ops.segment_sum(**inputs, backend="triton")
    assert torch.equal(found, ops.segment_sum(**inputs, backend="triton"))
    half = ops.segment_sum(inputs["x"].bfloat16(), inputs["batch"], inputs["ptr"], backend="triton")
    assert half.dtype == torch.bfloat16
    assert_close(half.float(), found, tolerance=1e-2)


def test_opcheck():
    inputs = make([2, 0, 3], 4)
    torch.library.opcheck(
        torch.ops.gssc.segment_sum_triton.default, (inputs["x"].requires_grad_(), *list(inputs.values())[1:])
    )


def test_bad_input():
    inputs = make([2, 3], 4)
    with pytest.raises(ValueError, match=r"batch: expected shape \[5\], got \[4\]"):
        ops.segment_sum(inputs["x"], inputs["batch"][1:], inputs["ptr"])
    with pytest.raises(ValueError, match="ptr: expected at least one element"):
        ops.segment_sum(inputs["x"], inputs["batch"], inputs["ptr"][:0])


@pytest.mark.parametrize("backend", ["naive", "torch", "triton"])
def test_one_graph_needs_no_batch(backend):
    inputs = make([7], 5)
    fixed = {"batch": None, "ptr": inputs["ptr"], "backend": backend}
    assert_matches_reference(
        partial(ops.segment_sum, **fixed), lambda x: x.sum(0, keepdim=True), {"x": inputs["x"]}, tolerance=1e-5
    )
    with pytest.raises(ValueError, match="batch: expected the graph number of every node for 2 graphs"):
        ops.segment_sum(inputs["x"], None, torch.tensor([0, 3, 7], device=DEVICE))
