"""Who holds which node: equal parts, few edges between them, the same in every run."""

import sys
from types import SimpleNamespace

import pytest
import torch

from gssc.shards import partition
from gssc.shards.partition import assign_nodes


def grid(side: int) -> torch.Tensor:
    """A grid in both directions, its nodes numbered at random."""
    number = torch.randperm(side**2, generator=torch.Generator().manual_seed(0)).view(side, side)
    pairs = [(number[:-1], number[1:]), (number[:, :-1], number[:, 1:])]
    edges = torch.cat([torch.stack([a.reshape(-1), b.reshape(-1)]) for a, b in pairs], dim=1)
    return torch.cat([edges, edges.flip(0)], dim=1)


def edges_cut(edges: torch.Tensor, part: torch.Tensor) -> float:
    return float((part[edges[0]] != part[edges[1]]).double().mean())


def test_propagation_cuts_few_edges_of_a_grid_and_keeps_sizes():
    edges, lines = grid(40), []
    part, used = assign_nodes(edges, 1600, 4, "propagation", say=lines.append)
    assert used == "propagation"
    sizes = torch.bincount(part, minlength=4)
    assert int(sizes.max()) <= 1.03 * 400 + 1
    # Two lines through the middle cut 80 of 3,120 edges.
    assert edges_cut(edges, part) < 0.06 < 0.7 < edges_cut(edges, assign_nodes(edges, 1600, 4, "random", seed=1)[0])
    assert "round 0" in lines[0]
    assert torch.equal(part, assign_nodes(edges, 1600, 4, "propagation")[0])


@pytest.mark.parametrize("method", ["propagation", "random"])
@pytest.mark.parametrize(("nodes", "ranks"), [(0, 2), (1, 3), (5, 5), (7, 1)])
def test_any_graph_is_divided(method, nodes, ranks):
    loops = torch.arange(nodes).expand(2, -1)
    part, _ = assign_nodes(loops, nodes, ranks, method)
    assert part.shape == (nodes,)
    assert not nodes or int(torch.bincount(part, minlength=ranks).max()) <= -(-nodes // ranks)


def test_metis_is_asked_where_it_is_installed(monkeypatch):
    def part_graph(ranks, adjacency):
        assert (ranks, adjacency[0].tolist(), adjacency[1].tolist()) == (2, [0, 1, 3, 4], [1, 0, 2, 1])
        return 1, [0, 0, 1]

    path = torch.tensor([[0, 1, 1], [1, 2, 0]])
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(ValueError, match=r"method: expected the package pymetis \(pip install pymetis\)"):
        assign_nodes(path, 3, 2, "metis")
    fake = SimpleNamespace(part_graph=part_graph, CSRAdjacency=lambda *ends: ends, __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "pymetis", fake)
    part, used = assign_nodes(path, 3, 2)
    assert used == "metis"
    assert part.tolist() == [0, 0, 1]


def test_a_large_graph_is_divided_by_clusters(monkeypatch):
    edges, lines = grid(60), []
    expected = edges_cut(edges, assign_nodes(edges, 3600, 3, "propagation")[0])
    # Of 14,160 edges, in chunks that have nothing to do with the grid.
    monkeypatch.setattr(partition, "MOST_EDGES", 4_000)
    monkeypatch.setattr(partition, "CHUNK", 1_111)
    part, _ = assign_nodes(edges.int(), 3600, 3, "propagation", say=lines.append)
    assert lines[0].endswith("clusters of 3,600")
    assert int(torch.bincount(part, minlength=3).max()) <= 1.03 * 1200
    assert edges_cut(edges, part) < 2.5 * expected < 0.1
    assert torch.equal(part, assign_nodes(edges, 3600, 3, "propagation")[0])
    # A star cannot be one cluster: its centre, which all would join, has no room for them.
    star = torch.stack([torch.zeros(3000, dtype=torch.long), torch.arange(1, 3001)]).repeat(1, 2)
    part, _ = assign_nodes(star, 3001, 3, "propagation")
    assert int(torch.bincount(part, minlength=3).max()) <= 1.03 * 1001


def test_blocks_of_the_given_numbers_stay_where_they_cut_less():
    # Two rings that cross only at one edge: the first half and the second.
    ring = torch.stack([torch.arange(50), (torch.arange(50) + 1) % 50])
    edges = torch.cat([ring, ring + 50, torch.tensor([[0], [50]])], dim=1)
    part, _ = assign_nodes(edges, 100, 2, "propagation")
    assert int((part[edges[0]] != part[edges[1]]).sum()) == 1


def test_metis_cuts_few_edges_of_a_grid_and_a_random_graph():
    pytest.importorskip("pymetis")
    edges = grid(40)
    part, used = assign_nodes(edges, 1600, 4, "metis")
    assert used == "metis"
    assert int(torch.bincount(part, minlength=4).max()) <= 1.03 * 400 + 1
    assert edges_cut(edges, part) <= edges_cut(edges, assign_nodes(edges, 1600, 4, "propagation")[0])
    assert torch.equal(part, assign_nodes(edges, 1600, 4, "metis")[0])
    drawn = torch.randint(0, 1600, (2, 4000), generator=torch.Generator().manual_seed(0))
    assert edges_cut(drawn, assign_nodes(drawn, 1600, 4, "metis")[0]) < 0.5
