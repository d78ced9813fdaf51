import copy

import torch
from graphs import random_graph
from torch_geometric.nn import GINEConv

from gssc import GINE
from gssc.testing import assert_close


def test_is_pygs_gine(float64):
    conv, data, x = GINE(3), random_graph(6), torch.randn(6, 3)
    e = torch.randn(data.num_edges, 3)
    theirs = GINEConv(copy.deepcopy(conv.nn))
    theirs.load_state_dict(conv.state_dict())
    assert_close(conv(x, data.edge_index, e), theirs(x, data.edge_index, e))


def test_no_edge_features_count_as_zero(float64):
    conv, data, x = GINE(3), random_graph(6), torch.randn(6, 3)
    assert_close(conv(x, data.edge_index), conv(x, data.edge_index, torch.zeros(data.num_edges, 3)))
