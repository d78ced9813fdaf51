import pytest
import torch
import torch.nn.functional as F
from batches import SIZES, make_ptr

from gssc.ops.attention import attention
from gssc.ops.segments import graph_slices
from gssc.testing import assert_close, assert_matches_reference

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


def naive(q, k, v, ptr, heads=2):
    rows = []
    for nodes in graph_slices(ptr):
        split = [t[nodes].unflatten(1, (heads, -1)).transpose(0, 1) for t in (q, k, v)]
        rows.append(F.scaled_dot_product_attention(*split).transpose(0, 1).flatten(1))
    return torch.cat(rows) if rows else torch.zeros_like(q)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_matches_graph_by_graph_attention(sizes):
    inputs = {name: torch.randn(sum(sizes), 6) for name in "qkv"} | {"ptr": make_ptr(sizes)}
    assert_matches_reference(lambda **t: attention(**t, heads=2), naive, inputs, tolerance=1e-11)


@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_a_bound_on_sizes_changes_nothing(sizes, more):
    inputs = {name: torch.randn(sum(sizes), 6) for name in "qkv"} | {"ptr": make_ptr(sizes)}
    largest = max([*sizes, 1]) + more
    assert_matches_reference(lambda **t: attention(**t, heads=2, largest=largest), naive, inputs, tolerance=1e-11)


def test_nodes_beyond_the_bound_are_left_out():
    q, k, v = (torch.randn(9, 4, requires_grad=True) for _ in range(3))
    out = attention(q, k, v, make_ptr([2, 0, 7]), heads=2, largest=3)
    expected = naive(*(torch.cat([t[:2], t[2:5]]) for t in (q, k, v)), make_ptr([2, 3]))
    assert_close(out[:5], expected)
    assert not out[5:].any()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert gradient[:5].isfinite().all()
        assert not gradient[5:].any()


@pytest.mark.parametrize("largest", [0, 4])
@pytest.mark.parametrize("sizes", [[2, 0, 3], [3]])
def test_opcheck(sizes, largest):
    tensors = [torch.randn(sum(sizes), 4, requires_grad=True) for _ in range(3)]
    torch.library.opcheck(torch.ops.gssc.attention.default, (*tensors, make_ptr(sizes), 2, largest))


def test_second_derivatives_with_a_bound_on_sizes():
    torch.manual_seed(0)
    rows = [torch.randn(6, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    ptr = torch.tensor([0, 2, 6])
    assert torch.autograd.gradgradcheck(lambda *qkv: attention(*qkv, ptr, 2, 5), rows)
