import pytest
import torch

from gssc.ops import batch_to_ptr
from gssc.ops.context import undirected_degree

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_first_node_of_every_graph(dtype):
    batch = torch.tensor([0, 0, 2, 2, 2, 3], dtype=dtype)
    assert batch_to_ptr(batch, 6, 5, CPU).tolist() == [0, 2, 2, 5, 6, 6]


def test_no_batch_is_one_graph():
    assert batch_to_ptr(None, 7, 1, CPU).tolist() == [0, 7]
    assert batch_to_ptr(torch.empty(0, dtype=torch.long), 0, 0, CPU).tolist() == [0]


@pytest.mark.parametrize(
    ("batch", "graphs", "message"),
    [
        (torch.tensor([0, 1, 0]), 2, "batch: expected graph numbers in ascending order"),
        (torch.tensor([0, 1, 2]), 2, "batch: expected graph numbers in 0..1, got 0..2"),
        (torch.tensor([-1, 0, 0]), 2, "batch: expected graph numbers in 0..1, got -1..0"),
        (torch.tensor([0, 0]), 1, r"batch: expected shape \[3\], got \[2\]"),
        (torch.tensor([0.0, 0.0, 0.0]), 1, "batch: expected an integer tensor"),
        (None, 2, "batch: expected the graph number of every node for 2 graphs, got None"),
    ],
)
def test_bad_batch(batch, graphs, message):
    with pytest.raises(ValueError, match=message):
        batch_to_ptr(batch, 3, graphs, CPU)


def test_opcheck():
    torch.library.opcheck(torch.ops.gssc.batch_to_ptr.default, (torch.tensor([0, 0, 2]), 3))


def test_undirected_degree_counts_neighbours():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(9, (2, 40), generator=generator)  # directed, repeated, with loops
    neighbours = [{a + b - u for a, b in edges.t().tolist() if u in (a, b)} for u in range(11)]
    assert undirected_degree(edges, 11).tolist() == [len(found) for found in neighbours]
    assert undirected_degree(edges[:, :0], 3).tolist() == [0, 0, 0]
    assert undirected_degree(edges[:, :0], 0).tolist() == []
