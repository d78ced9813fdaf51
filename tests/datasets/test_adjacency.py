import numpy as np
import pytest
import torch

from gssc.datasets.adjacency import decode_edges, encode_edges, halves
from gssc.datasets.flat import FlatGraphs

SIZES = (6, 1, 0, 9, 4)


def random_graphs(kind, seed=0):
    """Graphs of odd sizes in canonical order: both ways, one way, or with loops and parallel edges."""
    rng = np.random.default_rng(seed)
    ends = []
    for n in SIZES:
        matrix = rng.random((n, n)) < 0.5
        matrix &= ~np.eye(n, dtype=bool)
        if kind == "both":
            matrix |= matrix.T
        pairs = np.stack(np.nonzero(matrix))
        if kind == "parallel" and n > 1:
            pairs = np.concatenate([pairs, pairs[:, :2], [[0, 1], [0, 1]]], axis=1)
        ends.append(pairs)
    ptr = torch.tensor([0, *np.cumsum(SIZES)])
    edge_ptr = torch.tensor([0, *np.cumsum([e.shape[1] for e in ends])])
    flat = FlatGraphs(ptr, edge_ptr, torch.from_numpy(np.concatenate(ends, axis=1)), None, None, torch.zeros(5))
    return flat.sorted_by_destination()


@pytest.mark.parametrize(
    ("kind", "dense", "coding"),
    [("both", False, "both"), ("both", True, "dense"), ("one", False, "directed"), ("parallel", False, "directed")],
)
def test_edges_come_back_in_canonical_order(kind, dense, coding):
    flat = random_graphs(kind)
    ptr, edge_ptr, edge_index = flat.ptr.numpy(), flat.edge_ptr.numpy(), flat.edge_index.numpy()
    half = halves(ptr, edge_ptr, edge_index, [])
    assert (half is not None) == (kind == "both")
    columns, name = encode_edges(ptr, edge_ptr, edge_index, half, dense)
    assert name == coding
    back_ptr, back, behind = decode_edges(ptr, columns, name)
    assert np.array_equal(back_ptr, edge_ptr)
    assert np.array_equal(back, edge_index)
    if coding == "both":
        # The two directions of an edge share what was stored for one of them.
        values = np.arange(int(half.sum()))
        assert np.array_equal(values[behind][half], values)


def test_directions_with_different_attributes_are_not_halved():
    flat = random_graphs("both")
    arrays = flat.ptr.numpy(), flat.edge_ptr.numpy(), flat.edge_index.numpy()
    equal = flat.edge_index.sum(0).numpy().astype(np.float32)
    assert halves(*arrays, [equal]) is not None
    assert halves(*arrays, [flat.edge_index[0].numpy().astype(np.float32)]) is None


def test_edges_that_do_not_fit_the_graphs_are_refused():
    flat = random_graphs("both")
    ptr, edge_ptr, edge_index = flat.ptr.numpy(), flat.edge_ptr.numpy(), flat.edge_index.numpy()
    half = halves(ptr, edge_ptr, edge_index, [])
    for dense in (False, True):
        columns, name = encode_edges(ptr, edge_ptr, edge_index, half, dense)
        with pytest.raises(ValueError, match="do not fit"):
            decode_edges(ptr[:-1], columns, name)
