"""Where the nodes of a graph are: how far from one another along edges, and where to draw them."""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import shortest_path
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from gssc.checks import check_installed
from gssc.spectra.packed import edges_of

SPRINGS = 600  # nodes up to which springs between all pairs are laid out; beyond, among neighbours
SPECTRAL = 5_000  # nodes from which eigenvectors have to do


def adjacency(data: Data) -> sp.csr_array:
    """[N, N], not zero where an edge leads from the column to the row."""
    return sp.csr_array(to_scipy_sparse_matrix(edges_of(data).cpu(), num_nodes=int(data.num_nodes or 0)).T)


def hops_to(data: Data, nodes: list[int]) -> np.ndarray:
    """Edges on the shortest path from every node v to each of ``nodes``, [len(nodes), N]; inf where there is none.

    Edges are followed in their direction, as messages do; weights do not count.
    """
    if not nodes:
        return np.zeros((0, int(data.num_nodes or 0)))
    return np.atleast_2d(shortest_path(adjacency(data), directed=True, unweighted=True, indices=nodes))


def layout(data: Data) -> np.ndarray:
    """Positions [N, 2] between -1 and 1, the same every time.

    ``data.pos`` where there is one (row and column of a picture); otherwise springs as long as the shortest paths, up
    to a size; otherwise springs along edges; for very large graphs two eigenvectors of the Laplacian.
    """
    nodes = int(data.num_nodes or 0)
    positions = np.zeros((nodes, 2))
    if getattr(data, "pos", None) is not None:
        row, column = data.pos.cpu().double().numpy()[:, :2].T
        positions = np.stack([column, -row], axis=1)
    elif nodes <= SPECTRAL:
        positions = _springs(adjacency(data))
    elif getattr(data, "eigvecs", None) is not None:
        vectors = data.eigvecs.cpu().double().numpy()
        varied = vectors[:, vectors.std(axis=0) > 1e-6 * max(vectors.std(), 1e-30)][:, :2]
        positions[:, : varied.shape[1]] = varied
    if nodes:  # centred, and as large as fits, without changing proportions
        positions = positions - (positions.max(0) + positions.min(0)) / 2
    return positions / max(float(np.abs(positions).max(initial=0.0)), 1e-12)


def _springs(matrix: sp.csr_array) -> np.ndarray:
    check_installed("gssc explain", "networkx")
    import networkx as nx

    nodes = matrix.shape[0]
    graph = nx.from_scipy_sparse_array((matrix + matrix.T).tocsr())
    if nodes > SPRINGS:
        places = nx.spring_layout(graph, seed=0)
    else:
        hops = shortest_path(matrix, directed=False, unweighted=True)
        # Components are set beside one another, not infinitely far.
        hops[~np.isfinite(hops)] = hops[np.isfinite(hops)].max(initial=0.0) + 2.0
        places = nx.kamada_kawai_layout(graph, dist={i: dict(enumerate(row)) for i, row in enumerate(hops.tolist())})
    return np.array([places[node] for node in range(nodes)]).reshape(nodes, 2)
