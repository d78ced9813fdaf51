import pytest
import torch
from batches import SIZES, make_ptr

from gssc.ops.segments import buckets, graph_slices


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_every_node_has_one_slot_and_padding_at_most_doubles(sizes):
    ptr, nodes = make_ptr(sizes), sum(sizes)
    rows = torch.randn(nodes, 3)
    seen, padded_rows, back = [], 0, torch.full((nodes, 3), float("nan"))
    for bucket in buckets(ptr, nodes):
        padded = bucket.pad(rows)
        padded_rows += padded.shape[0] * padded.shape[1]
        numbers = range(len(sizes)) if bucket.graphs is None else bucket.graphs.tolist()
        assert bucket.count == len(numbers)
        for i, g in enumerate(numbers):
            begin, end = ptr[g], ptr[g + 1]
            assert torch.equal(padded[i, : end - begin], rows[begin:end])
            assert (padded[i, end - begin :] == 0).all()
        seen += numbers
        bucket.unpad(padded, back)
    assert {g for g, size in enumerate(sizes) if size} <= set(seen)
    assert len(seen) == len(set(seen))
    assert padded_rows <= 2 * nodes
    assert torch.equal(back, rows)


@pytest.mark.parametrize("ptr", [[1, 3], [0, 2], [0, 3, 2, 3], []])
def test_bad_ptr(ptr):
    with pytest.raises(ValueError, match="ptr: expected non-decreasing numbers from 0 to N = 3"):
        buckets(torch.tensor(ptr, dtype=torch.long), 3)


def test_graph_slices():
    assert [(s.start, s.stop) for s in graph_slices(torch.tensor([0, 2, 2, 5]))] == [(0, 2), (2, 2), (2, 5)]
