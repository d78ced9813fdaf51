import pytest
import torch
from batches import SIZES, make_ptr

from gssc.ops.segments import graph_slices, layout


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_every_node_has_one_slot_and_padding_at_most_doubles(sizes):
    ptr, nodes = make_ptr(sizes), sum(sizes)
    plan = layout(ptr, nodes)
    if plan.uniform is not None:
        assert all(size == plan.uniform for size in sizes)
        return
    rows = torch.randn(nodes, 3)
    seen, padded_rows, back = [], 0, torch.full((nodes, 3), float("nan"))
    for bucket in plan.buckets:
        padded = bucket.pad(rows)
        padded_rows += padded.shape[0] * padded.shape[1]
        for i, g in enumerate(bucket.graphs.tolist()):
            begin, end = ptr[g], ptr[g + 1]
            assert torch.equal(padded[i, : end - begin], rows[begin:end])
            assert (padded[i, end - begin :] == 0).all()
        seen += bucket.graphs.tolist()
        bucket.unpad(padded, back)
    assert sorted(seen) == [g for g, size in enumerate(sizes) if size]
    assert padded_rows <= 2 * nodes
    assert torch.equal(back, rows)


@pytest.mark.parametrize("ptr", [[1, 3], [0, 2], [0, 3, 2, 3], []])
def test_bad_ptr(ptr):
    with pytest.raises(ValueError, match="ptr: expected non-decreasing numbers from 0 to N = 3"):
        layout(torch.tensor(ptr, dtype=torch.long), 3)


def test_graph_slices():
    assert [(s.start, s.stop) for s in graph_slices(torch.tensor([0, 2, 2, 5]))] == [(0, 2), (2, 2), (2, 5)]
