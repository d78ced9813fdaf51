"""Labelled pairs of nodes as `RandomLinkSplit` makes them: how files hold them, what is found, what is refused."""

import pytest
import torch
from edge_pairs import link_split, near_graph
from torch_geometric.data import Data
from torch_geometric.utils import is_undirected

from gssc import LaplacianSpectrum, model_inputs
from gssc.datasets import describe, open_own
from gssc.recipes import own_recipe
from gssc.spectra.packed import pack
from gssc.train.build import build_stores

CPU = torch.device("cpu")


def opened(content, path, **settings):
    torch.save(content, path / "links.pt")
    return open_own(path / "links.pt", **settings)


def rated(graph, labels):
    """All edges of a graph as labelled pairs."""
    return Data(x=graph.x, edge_index=graph.edge_index, edge_label_index=graph.edge_index, edge_label=labels)


def test_the_parts_of_one_graph_keep_their_own_edges_and_pairs(tmp_path):
    parts = link_split(near_graph())
    for content in (parts, list(parts)):
        dataset = opened(content, tmp_path)
        assert (dataset.task.level, dataset.task.kind, dataset.task.metric) == ("edge", "binary", "auroc")
        for part, name in zip(parts, ("train", "val", "test"), strict=True):
            flat = dataset.splits[name]
            assert torch.equal(flat.edge_index, part.edge_index)
            assert torch.equal(flat.pair_index, part.edge_label_index)
            assert torch.equal(flat.y[:, 0], part.edge_label)
    assert opened(parts, tmp_path, metric="ap").task.metric == "ap"


def test_labels_of_the_nodes_and_their_masks_are_left_alone(tmp_path):
    graph = near_graph()
    graph.y, graph.train_mask = torch.arange(40) % 3, torch.ones(40, dtype=torch.bool)
    assert opened(link_split(graph), tmp_path).task.level == "edge"


def test_lists_of_graphs_in_every_form_are_the_same_dataset(tmp_path):
    split = [link_split(near_graph(20 + seed, seed), seed) for seed in range(3)]
    datasets = [opened(content, tmp_path) for content in (split, tuple(map(list, zip(*split, strict=True))))]
    assert datasets[0].content() == datasets[1].content()
    assert [len(part) for part in datasets[0].splits.values()] == [3, 3, 3]
    second = datasets[0].splits["val"].part(1, 2, "edge")
    assert torch.equal(second.pair_index, split[1][1].edge_label_index)
    assert torch.equal(second.y[:, 0], split[1][1].edge_label)


def test_one_graph_with_masks_of_its_pairs(tmp_path):
    graph = near_graph()
    part = torch.arange(graph.num_edges) % 3
    data = rated(graph, torch.cdist(graph.x, graph.x)[*graph.edge_index])
    data.train_mask, data.val_mask, data.test_mask = (part == number for number in range(3))
    dataset = opened(data, tmp_path)
    assert (dataset.task.kind, dataset.task.metric) == ("regression", "mae")
    for number, flat in enumerate(dataset.splits.values()):
        assert torch.equal(flat.pair_index, graph.edge_index[:, part == number])
        assert torch.equal(flat.y[:, 0], data.edge_label[part == number])
    data.train_mask = torch.ones(40, dtype=torch.bool)
    with pytest.raises(ValueError, match=rf"train_mask: expected one truth value for each of {graph.num_edges} edges"):
        opened(data, tmp_path)


def test_classes_and_names_of_ones_own(tmp_path):
    graph = near_graph()
    graph.kind = torch.arange(graph.num_edges) % 4
    parts = link_split(graph, key="kind", neg_sampling_ratio=0.0, is_undirected=False)
    dataset = opened(parts, tmp_path)
    assert (dataset.task.kind, dataset.task.outputs, dataset.task.metric) == ("multiclass", 4, "accuracy")
    assert torch.equal(dataset.splits["test"].y, parts[2].kind)


def test_parts_without_negatives_get_some_that_are_none_of_the_links(tmp_path):
    graph = near_graph()
    dataset = opened(link_split(graph, neg_sampling_ratio=0.0), tmp_path)
    joined = set(map(tuple, graph.edge_index.T.tolist()))
    for name in ("val", "test"):
        flat = dataset.splits[name]
        drawn = [tuple(pair) for pair in flat.pair_index.T[flat.y[:, 0] == 0].tolist()]
        assert len(drawn) == int((flat.y == 1).sum()) > 0
        assert not joined & set(drawn)
    assert bool((dataset.splits["train"].y == 1).all())  # it draws in every epoch
    assert "as many pairs without one are drawn in every epoch" in describe(dataset)
    assert dataset.content() == opened(link_split(graph, neg_sampling_ratio=0.0), tmp_path).content()


def test_the_spectrum_of_a_part_is_that_of_its_own_edges(tmp_path):
    parts = link_split(near_graph())
    dataset = opened(parts, tmp_path)
    recipe = own_recipe(tmp_path / "links.pt").override(["spectrum.k=8", "spectrum.rwse=4"])
    stores = build_stores(dataset, recipe, CPU, False)
    for part, store in zip(parts, stores.values(), strict=True):
        alone = LaplacianSpectrum(k=8, cache=False)(Data(edge_index=part.edge_index, num_nodes=40))
        assert torch.allclose(store.of_graphs["eigvals"][:1], alone.eigvals, atol=1e-5)
    assert not torch.allclose(stores["train"].of_graphs["eigvals"], stores["test"].of_graphs["eigvals"], atol=1e-5)
    # What training and selection see does not change with the edges that the test part alone has.
    fewer = parts[2].clone()
    fewer.edge_index = parts[0].edge_index
    other = build_stores(opened((*parts[:2], fewer), tmp_path), recipe, CPU, False)
    for name in ("train", "val"):
        before, after = (s[name].batch(torch.zeros(1, dtype=torch.long)).inputs for s in (stores, other))
        assert all(torch.equal(before[key], after[key]) for key in ("eigvals", "eigvecs", "rwse", "edge_label_index"))


def test_a_spectrum_from_before_the_split_is_noticed():
    for part in link_split(LaplacianSpectrum(k=4)(near_graph())):
        with pytest.raises(ValueError, match="computed after the graph was cut"):
            model_inputs(part)


def test_order_is_inferred_from_the_edges(tmp_path):
    graph = near_graph()
    parts = link_split(graph, is_undirected=False)
    assert not is_undirected(parts[0].edge_index)
    text = describe(opened(parts, tmp_path))
    assert "pairs: ordered" in text
    assert "edges the other way round; an undirected graph is split by RandomLinkSplit(is_undirected=True)" in text
    assert "pairs: without order" in describe(opened(link_split(graph), tmp_path))


def leaking(train, val, test):
    test.edge_index = torch.cat([test.edge_index, test.edge_label_index[:, test.edge_label == 1].flip(0)], dim=1)


def out_of_range(train, val, test):
    val.edge_label_index[1, 3] = 40


def too_few(train, val, test):
    val.edge_label = val.edge_label[1:]


def no_labels(train, val, test):
    for part in (train, val, test):
        del part.edge_label


def floats(train, val, test):
    train.edge_label_index = train.edge_label_index.float()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (leaking, r"edge_index of the test part: expected none of the edges to predict .*, got \d+ of them"),
        (out_of_range, r"edge_label_index of graph 1: expected node numbers in 0..39, got \d+..40"),
        (too_few, r"edge_label of graph 1: expected \d+ labels, one for each pair, got \d+"),
        (no_labels, "edge_label: expected a target for every graph, node or pair, got no edge_label in"),
        (floats, "edge_label_index of graph 0: expected node numbers, got torch.float32"),
    ],
)
def test_errors_are_one_line(tmp_path, spoil, message):
    parts = link_split(near_graph())
    spoil(*parts)
    with pytest.raises(ValueError, match=message) as caught:
        opened(parts, tmp_path)
    assert "\n" not in str(caught.value)


def test_labels_in_two_attributes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"edge_label: expected labels of all pairs .*, got pos_edge_label"):
        opened(link_split(near_graph(), split_labels=True), tmp_path)


def test_attributes_that_end_in_index_change_nothing_beside_y(tmp_path):
    graphs = [near_graph(12, seed) for seed in range(4)]
    for graph in graphs:
        graph.y, graph.ring_index, graph.ring = torch.rand(1), torch.zeros(2, 3, dtype=torch.long), torch.zeros(3)
    assert opened(graphs, tmp_path).task.level == "graph"
    assert pack(graphs).num_graphs == 4
