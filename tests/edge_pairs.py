"""A small graph whose nodes are joined where they are near, and its pairs as ``RandomLinkSplit`` makes them."""

import torch
from torch_geometric.data import Data
from torch_geometric.transforms import RandomLinkSplit


def near_graph(nodes: int = 40, seed: int = 0, radius: float = 0.3) -> Data:
    """Points in a square, each joined with those near it, both ways; their places are the features."""
    places = torch.rand(nodes, 2, generator=torch.Generator().manual_seed(seed))
    near = (torch.cdist(places, places) < radius) & ~torch.eye(nodes, dtype=torch.bool)
    return Data(x=places, edge_index=near.nonzero().T.contiguous())


def link_split(graph: Data, seed: int = 0, **settings) -> tuple[Data, Data, Data]:
    torch.manual_seed(seed)
    return RandomLinkSplit(**{"num_val": 0.1, "num_test": 0.2, "is_undirected": True, **settings})(graph)
