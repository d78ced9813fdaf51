import numpy as np
import torch
from explain_cases import ONE_NODE, TWO_PARTS
from graphs import path
from torch_geometric.data import Data

from gssc.explain import hops_to


def test_along_a_path_and_between_components():
    assert hops_to(path(5), [0, 3]).tolist() == [[0, 1, 2, 3, 4], [3, 2, 1, 0, 1]]
    hops = hops_to(TWO_PARTS, [0])[0]
    assert hops[:4].tolist() == [0, 1, 2, 3]
    assert np.isinf(hops[4:]).all()
    assert hops_to(ONE_NODE, [0]).tolist() == [[0]]
    assert hops_to(path(3), []).shape == (0, 3)


def test_edges_are_followed_as_messages_are():
    """0 → 1 → 2, and 1 → 2 twice: what node 0 says reaches node 2, not the other way round."""
    data = Data(edge_index=torch.tensor([[0, 1, 1], [1, 2, 2]]), num_nodes=3)
    assert hops_to(data, [2]).tolist() == [[2, 1, 0]]
    assert hops_to(data, [0]).tolist() == [[0, np.inf, np.inf]]
    assert hops_to(Data(num_nodes=2), [1]).tolist() == [[np.inf, 0]]
