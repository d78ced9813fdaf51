"""Graphs for tests: named ones, random ones, and a hypothesis strategy that includes the ugly ones."""

import networkx as nx
import numpy as np
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data


def from_networkx(graph: nx.Graph) -> Data:
    """Unweighted PyG graph with both directions of every edge, and no features."""
    nodes = {node: i for i, node in enumerate(graph.nodes)}
    pairs = [(nodes[u], nodes[v]) for u, v in graph.edges]
    pairs += [(v, u) for u, v in pairs if u != v]
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()
    return Data(edge_index=edge_index, num_nodes=len(nodes))


def path(n: int) -> Data:
    return from_networkx(nx.path_graph(n))


def cycle(n: int) -> Data:
    return from_networkx(nx.cycle_graph(n))


def complete(n: int) -> Data:
    return from_networkx(nx.complete_graph(n))


def star(n: int) -> Data:
    return from_networkx(nx.star_graph(n - 1))


def edgeless(n: int) -> Data:
    return from_networkx(nx.empty_graph(n))


def random_graph(n: int, p: float = 0.3, seed: int = 0) -> Data:
    return from_networkx(nx.gnp_random_graph(n, p, seed=seed))


def two_triangles() -> Data:
    return from_networkx(nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)))


def rook_4x4() -> Data:
    return from_networkx(nx.line_graph(nx.complete_bipartite_graph(4, 4)))


def shrikhande() -> Data:
    steps = [(1, 0), (0, 1), (1, 1)]
    graph = nx.Graph()
    for a in range(4):
        for b in range(4):
            for da, db in steps:
                graph.add_edge((a, b), ((a + da) % 4, (b + db) % 4))
    return from_networkx(graph)


def dense_adjacency(data: Data) -> np.ndarray:
    """A [n, n] in float64, multi-edges added up."""
    a = np.zeros((data.num_nodes, data.num_nodes))
    weight = data.edge_weight.double().numpy() if "edge_weight" in data else np.ones(data.num_edges)
    np.add.at(a, (data.edge_index[0].numpy(), data.edge_index[1].numpy()), weight)
    return a


def disjoint_union(parts: list[Data]) -> Data:
    offset, edges = 0, []
    for part in parts:
        edges.append(part.edge_index + offset)
        offset += part.num_nodes
    return Data(edge_index=torch.cat(edges, dim=1) if edges else torch.empty(2, 0, dtype=torch.long), num_nodes=offset)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 12, weighted: bool = True) -> Data:
    """Any undirected graph: families with degenerate spectra, unions, isolated nodes, multi-edges, loops, weights."""
    size = st.integers(1, max_nodes)
    kind = draw(st.sampled_from(["path", "cycle", "star", "complete", "edgeless", "random", "union"]))
    if kind == "union":
        parts = [draw(graphs(max_nodes=max(1, max_nodes // 3), weighted=False)) for _ in range(draw(st.integers(2, 3)))]
        data = disjoint_union([Data(edge_index=part.edge_index, num_nodes=part.num_nodes) for part in parts])
    elif kind == "random":
        data = random_graph(draw(size), draw(st.floats(0.1, 0.9)), draw(st.integers(0, 1000)))
    else:
        make = {"path": path, "cycle": cycle, "star": star, "complete": complete, "edgeless": edgeless}[kind]
        data = make(max(3, draw(size)) if kind == "cycle" else draw(size))
    extras = []
    if draw(st.booleans()):
        node = draw(st.integers(0, data.num_nodes - 1))
        extras.append(torch.tensor([[node], [node]]))
    if data.num_edges and draw(st.booleans()):
        edge = data.edge_index[:, [draw(st.integers(0, data.num_edges - 1))]]
        extras.append(torch.cat([edge, edge.flip(0)], dim=1))
    data.edge_index = torch.cat([data.edge_index, *extras], dim=1)
    if weighted and draw(st.booleans()):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
        matrix = torch.rand(data.num_nodes, data.num_nodes, generator=generator, dtype=torch.float64) + 0.1
        matrix = (matrix + matrix.T) / 2
        data.edge_weight = matrix[data.edge_index[0], data.edge_index[1]]
    return data
