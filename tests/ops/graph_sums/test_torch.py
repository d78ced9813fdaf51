from functools import partial

import pytest
import torch
from batches import SIZES, make_ptr

from gssc import ops
from gssc.ops.graph_sums import naive
from gssc.ops.graph_sums import torch as by_torch
from gssc.testing import assert_matches_reference

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


def inputs(sizes, k=3, c=5):
    nodes, graphs = sum(sizes), len(sizes)
    return torch.randn(nodes, k), torch.randn(nodes, c), torch.randn(graphs, k, c), make_ptr(sizes)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_matches_naive(sizes):
    vectors, x, state, ptr = inputs(sizes)
    to_state, from_state = partial(ops.to_state, backend="torch"), partial(ops.from_state, backend="torch")
    assert_matches_reference(to_state, naive.to_state, {"vectors": vectors, "x": x, "ptr": ptr})
    assert_matches_reference(from_state, naive.from_state, {"vectors": vectors, "state": state, "ptr": ptr})


@pytest.mark.parametrize("sizes", [[2, 0, 3], [3]])
def test_differentiable_twice(sizes):
    vectors, x, state, ptr = (t.requires_grad_() if t.is_floating_point() else t for t in inputs(sizes, 2, 2))
    assert torch.autograd.gradcheck(lambda p, x: by_torch.to_state(p, x, ptr), (vectors, x))
    assert torch.autograd.gradgradcheck(lambda p, x: by_torch.to_state(p, x, ptr), (vectors, x))
    assert torch.autograd.gradcheck(lambda p, s: by_torch.from_state(p, s, ptr), (vectors, state))
    assert torch.autograd.gradgradcheck(lambda p, s: by_torch.from_state(p, s, ptr), (vectors, state))


def test_opcheck():
    vectors, x, state, ptr = (t.requires_grad_() if t.is_floating_point() else t for t in inputs([2, 0, 3]))
    torch.library.opcheck(torch.ops.gssc.to_state.default, (vectors, x, ptr))
    torch.library.opcheck(torch.ops.gssc.from_state.default, (vectors, state, ptr))
