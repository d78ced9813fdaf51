from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest
import torch
from graphs import cycle, from_networkx, path
from hypothesis import given
from hypothesis import strategies as st

from gssc.datasets.flat import pack_columns
from gssc.datasets.molecules import flat_molecules
from gssc.datasets.recombine import SMALLEST_PIECE, recombine
from gssc.datasets.smiles import read_molecules
from gssc.datasets.zinc_atoms import zinc_molecule

SIZES = (9, 14, 3, 30, 7, 22, 1, 11)


def trees_with_rings(seed=0, kinds=2, outputs=1):
    """Random trees, some with a ring; categories of nodes, and of edges in both directions alike."""
    made = []
    for number, size in enumerate(SIZES):
        tree = nx.random_labeled_tree(size, seed=seed + number)
        tree.add_edges_from([(0, size - 1)] if size > 3 and number % 2 else [])
        made.append(from_networkx(tree))
    graphs = pack_columns(made)[0]
    low, high = graphs.edge_index.min(0).values, graphs.edge_index.max(0).values
    x = torch.randint(5, (graphs.num_nodes, 1), generator=torch.Generator().manual_seed(seed))
    edge_attr = ((low * 7 + high * 3) % kinds).view(-1, 1)
    return replace(graphs, x=x, edge_attr=edge_attr, y=torch.randn(len(SIZES), outputs))


def parts(graphs, number):
    """Node features, ends and edge features of one graph."""
    nodes = slice(int(graphs.ptr[number]), int(graphs.ptr[number + 1]))
    edges = slice(int(graphs.edge_ptr[number]), int(graphs.edge_ptr[number + 1]))
    return graphs.x[nodes], graphs.edge_index[:, edges], graphs.edge_attr[edges]


def surroundings(graphs, number):
    """How often a node of each kind occurs: its features, and those of its edges."""
    x, (_, destination), attributes = parts(graphs, number)
    around = [sorted(map(tuple, attributes[destination == node].tolist())) for node in range(len(x))]
    return Counter((tuple(row), tuple(edges)) for row, edges in zip(x.tolist(), around, strict=True))


@given(st.integers(0, 1000), st.integers(1, 3))
def test_new_graphs_are_connected_and_made_of_nodes_as_they_were(seed, kinds):
    graphs = trees_with_rings(seed, kinds)
    new = recombine(graphs, 20, seed)
    assert len(new) == 20
    assert new.y.shape == (20, 1)
    known = Counter()
    for number in range(len(graphs)):
        known |= surroundings(graphs, number)
    for number in range(20):
        x, ends, attributes = parts(new, number)
        graph = nx.Graph(ends.T.tolist())
        assert graph.number_of_nodes() == len(x) >= 2 * SMALLEST_PIECE
        assert nx.is_connected(graph)
        assert surroundings(new, number).keys() <= known.keys()
        # Every edge in both directions, once, alike.
        there = {(*pair, *row) for pair, row in zip(ends.T.tolist(), attributes.tolist(), strict=True)}
        assert len(there) == ends.shape[1]
        assert there == {(v, u, *row) for u, v, *row in there}
        assert all(u != v for u, v, *_ in there)


def test_pieces_are_joined_by_an_edge_of_their_kind():
    """Two paths of different nodes: where a new one changes from one to the other, it was cut in both."""
    graphs = pack_columns([path(10), path(12)])[0]
    names = torch.cat([torch.arange(10), 100 + torch.arange(12)]).view(-1, 1)
    graphs = replace(graphs, x=names, y=torch.zeros(2, 1))
    new = recombine(graphs, 200, 0)
    crossed = 0
    for number in range(200):
        x = new.x[new.ptr[number] : new.ptr[number + 1]]
        ends = new.edge_index[:, new.edge_ptr[number] : new.edge_ptr[number + 1]]
        jumps = [(int(x[u]), int(x[v])) for u, v in ends.T.tolist() if abs(int(x[u]) - int(x[v])) != 1]
        assert nx.degree_histogram(nx.Graph(ends.T.tolist())) == [0, 2, len(x) - 2]  # paths again
        if any(abs(u - v) > 50 for u, v in jumps):
            crossed += 1
            assert len(jumps) == 2
            (u, v), other = jumps
            assert (v, u) == other
            assert {u >= 100, v >= 100} == {True, False}
    assert crossed > 50
    assert 8 < new.ptr.diff().double().mean() < 14


def test_edges_of_one_kind_are_not_joined_to_those_of_another():
    graphs = pack_columns([path(8), path(8)])[0]
    kind = torch.arange(2).repeat_interleave(graphs.edge_ptr.diff()).view(-1, 1)
    graphs = replace(graphs, x=torch.arange(16).view(-1, 1), edge_attr=kind, y=torch.zeros(2, 1))
    new = recombine(graphs, 50, 3)
    for number in range(50):
        x, _, attributes = parts(new, number)
        assert len(set((x.view(-1) // 8).tolist())) == 1
        assert attributes.unique().numel() == 1


def test_molecules_give_molecules():
    """Valences hold: every atom has as many bonds of each order as before."""
    Chem = pytest.importorskip("rdkit.Chem")
    smiles = [
        "CC(=O)Oc1ccccc1C(=O)O",
        "CN1CCN(c2ccc([N+](=O)[O-])cc2)CC1",
        "C=CCc1ccc(O)c(OC)c1",
        "CC(C)Cc1ccc(cc1)C(C)C(=O)O",
        "OC(=O)CCCc1cc2ccccc2[nH]1",
        "C1CCC(CC1)C(=C2CCOCC2)C#N",
    ]
    read = read_molecules(smiles, smiles, encoding="zinc")
    new = recombine(flat_molecules(read, torch.zeros(len(smiles), 1)), 200, 0)
    found = set()
    for number in range(200):
        x, ends, bonds = parts(new, number)
        molecule = zinc_molecule(x[:, 0].tolist(), [(u, v) for u, v in ends.T.tolist()], bonds[:, 0].tolist())
        Chem.SanitizeMol(molecule)
        found.add(Chem.MolToSmiles(molecule))
    assert len(found - {Chem.CanonSmiles(one) for one in smiles}) > 50


def test_the_seed_decides_and_targets_are_left_open():
    graphs = trees_with_rings(outputs=3)
    first, again, other = (recombine(graphs, 30, seed) for seed in (5, 5, 6))
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.ptr, other.ptr)
    assert torch.equal(first.y, torch.zeros(30, 3))
    nodes = replace(graphs, y=torch.zeros(graphs.num_nodes), mask=torch.rand(graphs.num_nodes) < 0.5)
    of_nodes = recombine(nodes, 4, 0, "node")
    assert of_nodes.y.shape == of_nodes.mask.shape == (of_nodes.num_nodes,)
    assert of_nodes.mask.all()


def test_graphs_without_features():
    graphs = replace(pack_columns([path(9), cycle(5)])[0], y=torch.zeros(2, 1))
    new = recombine(graphs, 7, 0)
    assert new.x is None
    assert new.edge_attr is None
    assert len(new) == 7


def test_what_cannot_be_recombined_says_so():
    graphs = trees_with_rings()
    cases = [
        (replace(graphs, weight=torch.ones(graphs.num_edges)), r"graphs: expected no edge weights"),
        (replace(graphs, edge_attr=graphs.edge_attr.float()), r"edge_attr: expected categories .*, got torch.float32"),
        (
            replace(graphs, edge_attr=torch.arange(graphs.num_edges).view(-1, 1)),
            r"edge_attr: expected the same in both",
        ),
        (
            replace(pack_columns([cycle(9)])[0], y=torch.zeros(1, 1)),
            r"graphs: expected some with a bridge .*, got none",
        ),
    ]
    one_way = graphs.edge_index.clone()
    one_way[0, 0] = one_way[1, 0]
    cases.append((replace(graphs, edge_index=one_way), r"graphs: expected every edge in both directions"))
    for wrong, message in cases:
        with pytest.raises(ValueError, match=message):
            recombine(wrong, 3, 0)
    with pytest.raises(ValueError, match=r"count: expected"):
        recombine(graphs, 0, 0)
