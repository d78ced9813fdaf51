import pytest
import torch
from batches import SIZES, make_ptr

from gssc.ops.linear_attention import linear_attention, normalized_linear_attention
from gssc.ops.segments import graph_slices
from gssc.testing import assert_matches_reference


def naive(q, k, v, ptr, normalized=False):
    rows = []
    for nodes in graph_slices(ptr):
        weights = torch.einsum("uhm,vhm->huv", q[nodes], k[nodes])
        weights = weights / weights.sum(2, keepdim=True) if normalized else weights
        rows.append(torch.einsum("huv,vhd->uhd", weights, v[nodes]))
    return torch.cat(rows) if rows else v * 0


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.usefixtures("float64")
def test_matches_every_pair_of_nodes(sizes):
    q, k, v = (torch.rand(sum(sizes), 2, width) for width in (4, 4, 3))
    inputs = {"q": q, "k": k, "v": v, "ptr": make_ptr(sizes)}
    assert_matches_reference(linear_attention, naive, inputs, tolerance=1e-11)
    weighted = {name: value + 0.1 if name in "qk" else value for name, value in inputs.items()}
    plain = lambda **tensors: naive(**tensors, normalized=True)  # noqa: E731
    assert_matches_reference(normalized_linear_attention, plain, weighted, tolerance=1e-11)
