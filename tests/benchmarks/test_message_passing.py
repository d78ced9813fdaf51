import torch

from benchmarks.message_passing import SIZES, random_edges


def test_edges_stay_in_their_graphs_and_come_by_source():
    nodes, degree, _, size = SIZES["32 molecules"]
    source, target = random_edges(nodes, degree, size, "cpu")
    assert source.shape == (nodes * degree,)
    assert torch.equal(source // size, target // size)
    assert (source.diff() >= 0).all()
