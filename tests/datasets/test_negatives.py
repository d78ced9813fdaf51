import torch
from edge_pairs import link_split, near_graph
from torch_geometric.data import Data

from gssc.datasets.flat import concatenate, pack_columns
from gssc.datasets.negatives import NegativeSampler
from gssc.datasets.pairs import with_pairs


def links(*graphs):
    """Graphs that know their links alone, in one."""
    parts = []
    for graph in graphs:
        flat, labels = with_pairs([graph], pack_columns([graph])[0], "edge_label")
        parts.append(flat.__class__(**{**vars(flat), "y": labels}))
    return concatenate(parts)


def test_negatives_are_pairs_of_the_same_graph_that_nothing_joins():
    parts = [link_split(near_graph(15 + seed, seed), seed, neg_sampling_ratio=0.0)[0] for seed in range(3)]
    flat = links(*parts)
    sampler = NegativeSampler(flat, ordered=False)
    index, ptr, y = sampler.draw(7)
    assert torch.equal(ptr, 2 * flat.pair_ptr)
    for graph, part in enumerate(parts):
        pairs, label = index[:, ptr[graph] : ptr[graph + 1]], y[ptr[graph] : ptr[graph + 1], 0]
        count = part.edge_label_index.shape[1]
        assert torch.equal(pairs[:, :count], part.edge_label_index)
        assert label.tolist() == [1.0] * count + [0.0] * count
        known = torch.cat([part.edge_index, part.edge_label_index, part.edge_label_index.flip(0)], dim=1)
        drawn = set(map(tuple, pairs[:, count:].T.tolist()))
        assert not drawn & set(map(tuple, known.T.tolist()))
        assert all(u != v and max(u, v) < part.num_nodes for u, v in drawn)
    assert all(torch.equal(one, same) for one, same in zip(sampler.draw(7), (index, ptr, y), strict=True))
    assert not torch.equal(sampler.draw(8)[0], index)


def test_where_all_pairs_are_joined_the_labels_of_negatives_are_unknown():
    edges = torch.tensor([[0, 1, 0, 2, 1, 2], [1, 0, 2, 0, 2, 1]])
    triangle = Data(edge_index=edges, edge_label_index=edges[:, :2], edge_label=torch.ones(2), num_nodes=3)
    y = NegativeSampler(links(triangle), ordered=True).draw(0)[2]
    assert y[:2, 0].tolist() == [1.0, 1.0]
    assert bool(y[2:].isnan().all())


def test_of_ordered_pairs_the_reverse_of_a_link_may_be_drawn():
    one = Data(edge_index=torch.tensor([[0], [1]]), edge_label_index=torch.tensor([[0], [1]]), num_nodes=2)
    one.edge_label = torch.ones(1)
    index, _, y = NegativeSampler(links(one), ordered=True).draw(0)
    assert index[:, 1].tolist() == [1, 0]
    assert y[:, 0].tolist() == [1.0, 0.0]
    assert bool(NegativeSampler(links(one), ordered=False).draw(0)[2][1].isnan())
