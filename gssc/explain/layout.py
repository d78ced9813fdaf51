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


def layout(data: Data, seed: int = 0) -> np.ndarray:
    """Positions [N, 2] between -1 and 1, the same every time.

    ``data.pos`` where there is one (row and column of a picture); otherwise springs as long as the shortest paths, up
    to a size; otherwise springs along edges; for very large graphs two eigenvectors of the Laplacian.
    """
    nodes = int(data.num_nodes or 0)
    if getattr(data, "pos", None) is not None:
        row, column = data.pos.cpu().double().numpy()[:, :2].T
        return _scaled(np.stack([column, -row], axis=1))
    if nodes <= 2:
        return _scaled(np.array([[0.0, 0.0], [1.0, 0.0]])[:nodes])
    if nodes <= SPECTRAL:
        return _springs(data, nodes, seed)
    positions = np.zeros((nodes, 2))
    if getattr(data, "eigvecs", None) is not None:
        vectors = data.eigvecs.cpu().double().numpy()
        varied = vectors[:, vectors.std(axis=0) > 1e-6 * max(vectors.std(), 1e-30)][:, :2]
        positions[:, : varied.shape[1]] = varied
    return _scaled(positions)


def _springs(data: Data, nodes: int, seed: int) -> np.ndarray:
    check_installed("gssc explain", "networkx", "plot")
    import networkx as nx

    matrix = adjacency(data)
    graph = nx.from_scipy_sparse_array((matrix + matrix.T).tocsr())
    if nodes > SPRINGS:
        places = nx.spring_layout(graph, seed=seed)
    else:
        hops = shortest_path(matrix, directed=False, unweighted=True)
        finite = hops[np.isfinite(hops)]
        # Components are set beside one another, not infinitely far.
        hops[~np.isfinite(hops)] = finite.max(initial=0.0) + 2.0
        lengths = {i: dict(enumerate(row)) for i, row in enumerate(hops.tolist())}
        places = nx.kamada_kawai_layout(graph, dist=lengths)
    return _scaled(np.array([places[node] for node in range(nodes)]))


def _scaled(positions: np.ndarray) -> np.ndarray:
    """Centred, and as large as fits, without changing proportions."""
    if not positions.size:
        return positions
    centred = positions - (positions.max(0) + positions.min(0)) / 2
    return centred / max(float(np.abs(centred).max()), 1e-12)
