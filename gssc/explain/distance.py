"""How far nodes are from one another along edges."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path
from torch_geometric.data import Data


def adjacency(data: Data) -> sp.csr_array:
    """[N, N], one where an edge leads from the column to the row."""
    nodes = int(data.num_nodes or 0)
    if data.edge_index is None:
        return sp.csr_array((nodes, nodes))
    source, target = data.edge_index.cpu().numpy()
    matrix = sp.csr_array((np.ones(source.size), (target, source)), shape=(nodes, nodes))
    matrix.sum_duplicates()
    return matrix


def hops_to(data: Data, nodes: list[int]) -> np.ndarray:
    """Edges on the shortest path from every node v to each of ``nodes``, [len(nodes), N]; inf where there is none.

    Edges are followed in their direction, as messages do; weights do not count.
    """
    if not nodes:
        return np.zeros((0, int(data.num_nodes or 0)))
    return np.atleast_2d(shortest_path(adjacency(data), directed=True, unweighted=True, indices=nodes))
