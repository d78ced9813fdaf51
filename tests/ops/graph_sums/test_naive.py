import torch

from gssc.ops.graph_sums import naive


def test_products_of_a_graph_with_its_eigenvectors():
    vectors = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    x = torch.tensor([[1.0], [2.0], [4.0]])
    ptr = torch.tensor([0, 2, 3])
    state = naive.to_state(vectors, x, ptr)
    assert state.tolist() == [[[1.0], [4.0]], [[12.0], [4.0]]]
    assert naive.from_state(vectors, state, ptr).tolist() == [[1.0], [8.0], [40.0]]
