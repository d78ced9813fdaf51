"""A graph cut into shards: every node and edge once, and both sides agree on what is told."""

import pytest
import torch

from gssc.shards import cut_graph


def test_every_edge_lives_with_its_target_and_halos_name_their_owners():
    generator = torch.Generator().manual_seed(0)
    nodes, ranks = 30, 3
    edges = torch.randint(0, nodes, (2, 90), generator=generator)
    part = torch.randint(0, ranks, (nodes,), generator=generator)
    numbers = torch.arange(90)
    shards = list(cut_graph(edges, part, ranks, {"x": torch.arange(nodes)}, {"number": numbers}))
    assert torch.equal(torch.cat([shard["nodes"] for shard in shards]).sort().values, torch.arange(nodes))
    assert torch.equal(torch.cat([shard["number"] for shard in shards]).sort().values, numbers)
    in_degree = torch.bincount(edges[1, edges[0] != edges[1]], minlength=nodes)
    for rank, shard in enumerate(shards):
        assert torch.equal(shard["x"], shard["nodes"])
        assert bool((part[shard["nodes"]] == rank).all())
        both = torch.cat([shard["nodes"], shard["halo"]])
        assert torch.equal(both[shard["edge_index"].long()], edges[:, shard["number"]])
        assert torch.equal(shard["entering"].long(), in_degree[both])
        assert bool((shard["edge_index"][1].diff() >= 0).all())
        assert shard["halo"].unique().numel() == shard["halo"].numel()
        # What this process waits for is what the others send, in the same order.
        sent = [other["nodes"][other["send"].long()].split(other["send_counts"].tolist())[rank] for other in shards]
        assert torch.equal(torch.cat(sent), shard["halo"])
        assert shard["receive_counts"].tolist() == [len(rows) for rows in sent]
        assert shard["receive_counts"][rank] == 0


def test_a_part_beyond_the_processes_is_refused():
    with pytest.raises(ValueError, match=r"part: expected numbers of processes in 0\.\.1, got 0\.\.2"):
        next(cut_graph(torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 2]), 2, {}, {}))
