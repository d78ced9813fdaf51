"""Roads-like graphs: what their labels say is what Dijkstra says within 16 hops."""

import networkx as nx
import numpy as np
import torch

from benchmarks.roads import CLASSES, HOPS, eccentricity, roads


def test_labels_are_exact():
    generator = np.random.default_rng(3)
    right, down = (np.where(generator.random((4, 30)) < 0.2, np.inf, generator.random((4, 30))) for _ in range(2))
    right[:, -1] = down[-1] = np.inf
    graph = nx.Graph()
    graph.add_nodes_from(range(120))
    for row, column in np.ndindex(4, 30):
        for length, other in ((right[row, column], 1), (down[row, column], 30)):
            if np.isfinite(length):
                graph.add_edge(30 * row + column, 30 * row + column + other, weight=length)
    found = eccentricity(right, down).ravel()
    for node in range(0, 120, 7):
        lengths = {node: 0.0}  # of shortest paths with one more edge in every round
        for _ in range(HOPS):
            step = [(v, d + graph[u][v]["weight"]) for u, d in lengths.items() for v in graph[u]]
            for v, d in step:
                lengths[v] = min(d, lengths.get(v, np.inf))
        assert np.isclose(found[node], max(lengths.values()), rtol=1e-5)


def test_graphs_are_undirected_and_their_classes_of_one_size():
    data = roads(20, 25)
    pairs = {tuple(pair) for pair in data.edge_index.T.tolist()}
    assert {(v, u) for u, v in pairs} == pairs
    nodes = data.num_nodes
    assert 400 < nodes < 500
    assert nx.is_connected(nx.Graph(data.edge_index.T.tolist()))
    assert data.x.shape == (nodes, 3)
    assert set((torch.bincount(data.y, minlength=CLASSES) * CLASSES // nodes).tolist()) <= {0, 1}
    assert torch.equal(data.train_mask.long() + data.val_mask + data.test_mask, torch.ones(nodes, dtype=torch.long))
