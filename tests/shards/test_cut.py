"""A graph cut into shards: every node and edge once, both sides agree on what is told, in chunks of any size."""

import pytest
import torch

from gssc.ops.context import undirected_degree
from gssc.shards import cut, cut_graph


def draw_graph(seed: int, nodes: int, edges: int) -> torch.Tensor:
    """Edges with loops, parallel ones and, in places, their reverse."""
    ends = torch.randint(0, nodes, (2, edges), generator=torch.Generator().manual_seed(seed))
    return torch.cat([ends, ends[:, ::3].flip(0), ends[:, :4]], dim=1)


@pytest.mark.parametrize("chunk", [7, 1000])
@pytest.mark.parametrize(("nodes", "ranks", "used"), [(30, 3, 3), (30, 4, 2), (5, 8, 8), (1, 2, 1)])
def test_every_edge_lives_with_its_target_and_halos_name_their_owners(monkeypatch, tmp_path, chunk, nodes, ranks, used):
    monkeypatch.setattr(cut, "CHUNK", chunk)
    edges = draw_graph(nodes + ranks, nodes, 60)
    part = torch.randint(0, used, (nodes,), generator=torch.Generator().manual_seed(ranks))
    numbers = torch.arange(edges.shape[1])
    rows = {"number": numbers, "wide": numbers.view(-1, 1).expand(-1, 2).float()}
    shards = list(cut_graph(edges, part, ranks, {"x": torch.arange(nodes)}, rows, tmp_path / "out"))
    assert not list(tmp_path.iterdir())
    assert torch.equal(torch.cat([shard["nodes"] for shard in shards]).sort().values, torch.arange(nodes))
    assert torch.equal(torch.cat([shard["number"] for shard in shards]).sort().values, numbers)
    in_degree = torch.bincount(edges[1, edges[0] != edges[1]], minlength=nodes)
    neighbors = undirected_degree(edges, nodes)
    for rank, shard in enumerate(shards):
        assert torch.equal(shard["x"], shard["nodes"])
        assert torch.equal(shard["nodes"], (part == rank).nonzero().squeeze(1))
        both = torch.cat([shard["nodes"], shard["halo"]])
        ends = both[shard["edge_index"].long()]
        assert torch.equal(ends, edges[:, shard["number"]])
        assert torch.equal(shard["wide"][:, 1], shard["number"].float())
        # By target, then source, and parallel edges as they were listed.
        keys = (ends[1] * nodes + ends[0]) * len(numbers) + shard["number"]
        assert bool((keys.diff() > 0).all())
        assert torch.equal(shard["entering"].long(), in_degree[both])
        assert torch.equal(shard["neighbors"].long(), neighbors[shard["nodes"]].long())
        assert torch.equal(shard["halo"].sort().values, torch.unique(ends[0][part[ends[0]] != rank]))
        # What this process waits for is what the others send, in the same order.
        sent = [other["nodes"][other["send"].long()].split(other["send_counts"].tolist())[rank] for other in shards]
        assert torch.equal(torch.cat(sent), shard["halo"])
        assert shard["receive_counts"].tolist() == [len(rows) for rows in sent]
        assert shard["receive_counts"][rank] == 0


@pytest.mark.parametrize("seed", range(5))
def test_shards_are_the_same_bytes_however_edges_are_read(monkeypatch, seed):
    edges, part = draw_graph(seed, 13, 11 * seed), torch.randint(0, 3, (13,))
    expected = list(cut_graph(edges, part, 4, {}, {"number": torch.arange(edges.shape[1])}))
    for chunk, listed in ((1, edges), (5, edges.int()), (edges.shape[1] or 1, edges.T.contiguous().T)):
        monkeypatch.setattr(cut, "CHUNK", chunk)
        found = list(cut_graph(listed, part, 4, {}, {"number": torch.arange(edges.shape[1])}))
        for shard, one in zip(found, expected, strict=True):
            assert shard.keys() == one.keys()
            assert all(shard[name].dtype == one[name].dtype for name in one)
            assert all(torch.equal(shard[name], one[name]) for name in one)


def test_a_part_beyond_the_processes_is_refused():
    with pytest.raises(ValueError, match=r"part: expected numbers of processes in 0\.\.1, got 0\.\.2"):
        next(cut_graph(torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 2]), 2, {}, {}))
