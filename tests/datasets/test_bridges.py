import networkx as nx
import pytest
import torch
from graphs import complete, cycle, disjoint_union, edgeless, graphs, path, star
from hypothesis import given
from torch_geometric.data import Data

from gssc.datasets.bridges import find_bridges
from gssc.datasets.flat import pack_columns


def flat(*data):
    return pack_columns(list(data))[0]


def as_networkx(graphs, number):
    """With as many parallel edges as there are; loops stand once."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(int(graphs.ptr[number]), int(graphs.ptr[number + 1])))
    edges = graphs.edge_index[:, graphs.edge_ptr[number] : graphs.edge_ptr[number + 1]] + graphs.ptr[number]
    graph.add_edges_from((u, v) for u, v in edges.T.tolist() if u <= v)
    return graph


def check(*data):
    """Against networkx: which edges are bridges, what they separate, and that the graphs are the same but for names."""
    before = flat(*data)
    after, bridges = find_bridges(before)
    assert torch.equal(after.ptr, before.ptr)
    assert after.sorted_by_destination() is after
    for number, graph in enumerate(data):
        old, new = as_networkx(before.sorted_by_destination(), number), as_networkx(after, number)
        assert nx.could_be_isomorphic(old, new) if graph.num_nodes > 8 else nx.is_isomorphic(old, new)
        simple = nx.Graph(new)
        double = {frozenset((u, v)) for u, v, key in new.edges(keys=True) if key}
        expected = {frozenset(edge) for edge in nx.bridges(simple)} - double
        mine = (bridges.start >= int(after.ptr[number])) & (bridges.start < int(after.ptr[number + 1]))
        found = bridges.where(mine)
        assert {frozenset(ends) for ends in zip(found.above.tolist(), found.start.tolist(), strict=True)} == expected
        rows = zip(
            *(getattr(found, name).tolist() for name in ("above", "start", "stop", "first", "last")), strict=True
        )
        for (above, start, stop, first, last), sizes in zip(rows, found.sizes().tolist(), strict=True):
            rest = simple.copy()
            rest.remove_edge(above, start)
            assert nx.node_connected_component(rest, start) == set(range(start, stop))
            outer = set(range(first, last)) - set(range(start, stop))
            assert nx.node_connected_component(rest, above) == outer
            assert sizes == [len(outer), stop - start]


@given(graphs(weighted=False))
def test_any_graph(graph):
    check(graph)


@pytest.mark.parametrize("seed", range(5))
def test_trees_and_rings_end_to_end(seed):
    tree = nx.random_labeled_tree(12, seed=seed)
    edges = torch.tensor([pair for u, v in tree.edges for pair in ((u, v), (v, u))]).T
    check(Data(edge_index=edges, num_nodes=12), path(5), cycle(4), star(5), complete(4), edgeless(3))
    check(disjoint_union([path(3), cycle(3), path(1)]), path(2), edgeless(1))


def test_a_double_edge_is_no_bridge():
    pairs = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 2, 2, 1]]).view(-1, 2).T
    _, bridges = find_bridges(flat(Data(edge_index=pairs, num_nodes=3)))
    assert bridges.sizes().tolist() == [[2, 1]]


def test_features_go_with_their_nodes_and_edges():
    edges = torch.tensor([[2, 0, 0, 3, 3, 1], [0, 2, 3, 0, 1, 3]])
    names = torch.arange(4).view(-1, 1)
    attributes = edges.sum(0).view(-1, 1)
    after, _ = find_bridges(flat(Data(x=names, edge_index=edges, edge_attr=attributes, num_nodes=4)))
    assert sorted(after.x.view(-1).tolist()) == [0, 1, 2, 3]
    assert torch.equal(after.x[after.edge_index].sum(0), after.edge_attr)
