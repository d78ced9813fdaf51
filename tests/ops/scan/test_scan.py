"""The selective scan: by doubling and by kernels against the plain recurrence, outputs and every gradient."""

from functools import partial

import pytest
import torch
from batches import make_ptr

from gssc.ops.scan import naive, selective_scan, triton
from gssc.testing import assert_close, assert_matches_reference

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = [[1], [5], [3, 0, 7, 1], [70], [40, 1, 0, 33]]


def make(sizes, e=5, s=3):
    nodes = sum(sizes)
    tensors = {"u": torch.randn(nodes, e), "delta": torch.rand(nodes, e), "a": -torch.rand(e, s)}
    tensors |= {"b": torch.randn(nodes, s), "c": torch.randn(nodes, s), "ptr": make_ptr(sizes)}
    return {name: value.to(DEVICE) for name, value in tensors.items()}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.usefixtures("float64")
def test_doubling_is_the_plain_recurrence(sizes):
    by_torch = partial(selective_scan, backend="torch")
    assert_matches_reference(by_torch, naive.selective_scan, make(sizes), tolerance=1e-11)


@pytest.mark.parametrize(("sizes", "e", "s"), [([3, 0, 7, 1], 5, 3), ([19], 2, 2), ([70], 1, 1)], ids=str)
@pytest.mark.usefixtures("poisoned")
def test_kernels_are_the_plain_recurrence(monkeypatch, sizes, e, s):
    pytest.importorskip("triton")
    monkeypatch.setattr(triton, "CHUNK", 4)  # so that few nodes have several, and those again
    by_triton = partial(selective_scan, backend="triton")
    assert_matches_reference(by_triton, naive.selective_scan, make(sizes, e, s), tolerance=2e-5)


def test_nothing_passes_from_graph_to_graph_even_where_nothing_decays():
    inputs = make([4, 3]) | {"a": torch.zeros(5, 3, device=DEVICE)}
    for backend in ("naive", "torch", "triton"):
        changed = {name: value.clone() for name, value in inputs.items()}
        changed["u"][:4] = 1e9
        assert_close(selective_scan(**changed, backend=backend)[4:], selective_scan(**inputs, backend=backend)[4:])


@pytest.mark.usefixtures("float64")
def test_it_can_be_differentiated_twice():
    inputs = make([4, 2], 2, 2)
    ptr = inputs.pop("ptr")
    leaves = [value.requires_grad_() for value in inputs.values()]
    assert torch.autograd.gradgradcheck(lambda *tensors: selective_scan(*tensors, ptr), leaves)


def test_nothing_to_scan_and_bad_input():
    assert selective_scan(**make([0, 0])).shape == (0, 5)
    with pytest.raises(ValueError, match=r"b: expected shape"):
        selective_scan(**make([3]) | {"b": torch.zeros(2, 3, device=DEVICE)})
