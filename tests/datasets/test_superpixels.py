import itertools

import numpy as np
import pytest
import torch

from gssc.datasets import GraphDataset, superpixels, write_pack
from gssc.datasets.flat import FlatGraphs
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.train.open_data import open_for


def features(sizes=(12, 9, 30, 12, 40), channels=1, side=28, seed=0):
    """Features as the datasets have them, means over n pixels of colours in 255ths and of coordinates; exact ties."""
    rng = np.random.default_rng(seed)
    nodes = sum(sizes)
    pixels = rng.integers(1, 30, (nodes, 1))
    colours = (rng.integers(0, 255 * pixels + 1, (nodes, channels)) / (255 * pixels)).astype(np.float16)
    centres = (rng.integers(0, (side - 1) * pixels + 1, (nodes, 2)) / pixels).astype(np.float16)
    centres[-40:] = np.stack(np.meshgrid(np.arange(8), np.arange(5)), -1).reshape(-1, 2) * 3
    x = np.concatenate([colours.astype(np.float32), centres.astype(np.float32) / np.float32(side)], axis=1)
    return np.concatenate([[0], np.cumsum(sizes)]), x


def rebuilt(ptr, x):
    """Columns of the features alone, and edges and weights by the rule."""
    columns = superpixels._encode_nodes(ptr, x)
    nobody, nothing = np.zeros(0, np.int64), np.zeros((0, superpixels.K))
    columns |= {"odd_nodes": nobody, "odd_neighbours": nothing, "odd_weights": nothing}
    arrays = superpixels.decode(ptr, columns)
    return columns, arrays["edge_index"], arrays["edge_attr"]


def encoded(ptr, x, edge_index, weight):
    return superpixels.encode(ptr, superpixels.K * ptr, edge_index, x, weight)


def reference(ptr, pos):
    """The definition, one node at a time: (source, destination) -> weight."""
    edges = []
    for start, stop in itertools.pairwise(ptr):
        p = pos[start:stop].astype(np.float64)
        d = np.sqrt(((p[:, None] - p[None]) ** 2).sum(-1))
        width = np.sort(d, axis=1)[:, : superpixels.K + 1].sum(1) / superpixels.K + 1e-8
        a = (np.exp(-((d / width[:, None]) ** 2)) + np.exp(-((d / width[None, :]) ** 2))) / 2
        np.fill_diagonal(a, 0)
        graph = {}
        for i, row in enumerate(a):
            for j in sorted(range(len(row)), key=lambda j: (-round(row[j], 10), j))[: superpixels.K]:
                graph[j, i] = row[j]
        edges += [(source, destination, graph[destination, source]) for destination, source in sorted(graph)]
    return np.array(edges)


def test_rebuilt_edges_follow_the_definition():
    ptr, x = features()
    _, edge_index, weight = rebuilt(ptr, x)
    expected = reference(ptr, x[:, -2:])
    assert np.array_equal(edge_index.T, expected[:, :2])
    np.testing.assert_array_equal(weight[:, 0], expected[:, 2].astype(np.float32))


def test_what_does_not_follow_the_rule_is_an_exception():
    ptr, x = features()
    _, edge_index, weight = rebuilt(ptr, x)
    # Node 0 of the first graph leads elsewhere than to its nearest nodes.
    moved = edge_index.copy()
    far = sorted(set(range(1, 12)) - set(edge_index[1][:96][edge_index[0][:96] == 0].tolist()))[0]
    moved[1, int(np.flatnonzero(moved[0][:96] == 0)[0])] = far
    order = np.lexsort([moved[0][:96], moved[1][:96]])
    moved[:, :96] = moved[:, :96][:, order]
    # One weight of the second graph is the next number.
    weight = weight.copy()
    weight[:96] = weight[:96][order]
    weight[100] = np.nextafter(weight[100], np.float32(1))
    columns = encoded(ptr, x, moved, weight)
    assert columns["odd_nodes"].tolist() == [0, 12 + moved[0, 100]]
    back = superpixels.decode(ptr, columns)
    assert np.array_equal(back["edge_index"], moved)
    assert back["edge_attr"].tobytes() == weight.tobytes()


def test_edges_of_another_kind_are_no_superpixels():
    ptr, x = features()
    _, edge_index, weight = rebuilt(ptr, x)
    assert encoded(ptr, np.random.default_rng(9).permutation(x), edge_index, weight) is None
    assert encoded(ptr, x, edge_index, weight)["odd_nodes"].size == 0


def test_nodes_next_to_a_rounding_boundary_are_not_safe(monkeypatch):
    ptr, x = features()
    middle = np.float64(np.float32(0.5)) * (1 + 2.0**-24)
    tie = 0.3 + 0.5e-10

    def similarity(pos):
        """Twelve nodes: a weight at a boundary of float32, one at a boundary of the decimals, one that matters not."""
        a = np.tile(np.arange(1, 13) / 16, (1, 12, 1))
        a[0, 0, 11] = middle
        a[0, 1, 3:5] = tie, tie + 1e-11
        a[0, 2, 0] = tie - 0.2
        return a

    monkeypatch.setattr(superpixels, "similarity", similarity)
    _, _, safe = superpixels.nearest(ptr[:2], x[:12, -2:])
    assert np.flatnonzero(~safe).tolist() == [0, 1]


def test_pixels_of_other_graphs_are_refused():
    ptr, x = features()
    columns, _, _ = rebuilt(ptr, x)
    for graph, nodes in ((5, 10**12), (1, 10**12), (1, 10), (5, 1)):
        other = ptr.copy()
        other[graph] += nodes
        with pytest.raises(ValueError, match="pixels that do not fit the graphs"):
            superpixels.decode(other, columns)
    with pytest.raises(ValueError, match="pixels that do not fit the graphs"):
        superpixels.decode(ptr, {**columns, "pixels": np.zeros_like(columns["pixels"])})


def test_graphs_that_are_too_large_or_too_small_are_no_superpixels():
    for sizes in ((1001,), (40, 8)):
        ptr, x = features(sizes)
        anything = np.zeros((2, 8 * len(x)), np.int64)
        assert encoded(ptr, x, anything, np.zeros((8 * len(x), 1), np.float32)) is None
        with pytest.raises(ValueError, match="pixels that do not fit the graphs"):
            superpixels.decode(ptr, {"pixels": np.ones((len(x), 1), np.int64)})


def test_neighbours_outside_of_a_graph_are_refused():
    ptr, x = features()
    columns, _, _ = rebuilt(ptr, x)
    for wrong in (12, -1):
        odd = {"odd_nodes": np.array([0]), "odd_neighbours": np.full(8, wrong), "odd_weights": np.ones(8)}
        with pytest.raises(ValueError, match="an edge that leads out of its graph"):
            superpixels.decode(ptr, columns | odd)


def test_ties_go_to_the_smaller_number():
    a = np.array([[[0.0, 0.5, 0.5 + 1e-13, 0.7]]])
    assert np.argsort(-superpixels.sort_keys(a)).tolist() == [[[3, 1, 2, 0]]]


@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32), (12, 32)])
def test_means_of_pixels_come_back_from_sums(channels, side):
    ptr, x = features((12, 28, 50), channels, side)
    columns, _, _ = rebuilt(ptr, x)
    assert {"side", "pixels", "centres", "levels", "rest"} < set(columns)
    assert superpixels.decode(ptr, columns)["x"].tobytes() == x.tobytes()


def test_other_features_are_not_taken_for_means_of_pixels():
    ptr, x = features((12, 28, 50), 3, 32)
    for column, value in ((0, 0.1), (4, 0.1), (1, -0.0), (0, -0.5), (3, 2000.0), (2, np.nan)):
        other = x.copy()
        other[7, column] = value
        columns = superpixels._encode_nodes(ptr, other)
        assert columns is None or superpixels._decode_nodes(ptr, columns).tobytes() == other.tobytes()
    assert superpixels._encode_nodes(ptr, np.random.default_rng(0).random((90, 5), dtype=np.float32)) is None


def test_about_half_of_the_images_are_mirrored():
    batch = torch.arange(40).repeat_interleave(3)
    x = torch.rand(120, 4)
    x[:, 3] = torch.randint(32, (120,)) / 32
    found = superpixels.mirrored(x, batch, 40, 32)
    assert torch.equal(found[:, :3], x[:, :3])
    same, turned = (column.view(40, 3).all(1) for column in (found[:, 3] == x[:, 3], found[:, 3] == 31 / 32 - x[:, 3]))
    assert (same != turned).all()  # whole images
    assert 8 < int(turned.sum()) < 32


def test_the_published_code_drops_one_of_nine():
    ptr, x = features(sizes=(12, 10, 30, 12, 40))
    neighbours, weights = superpixels.published(ptr, x[:, -2:])
    nearest, _, _ = superpixels.nearest(ptr, x[:, -2:])
    differing = 0
    for start, stop in itertools.pairwise(ptr):
        a = superpixels.similarity(x[None, start:stop, -2:])[0]
        for node, row in enumerate(np.rint(a * 1e10)):
            kept = neighbours[start + node]
            assert len(set(kept.tolist())) == 8
            assert row[kept].min() >= np.sort(row)[-9]
            assert np.array_equal(weights[start + node], a[node][kept].astype(np.float32))
            differing += len(set(kept.tolist()) - set(nearest[start + node].tolist()))
    assert differing > 0


def test_ten_nodes_are_needed():
    ptr, x = features(sizes=(9, 40))
    flat = FlatGraphs(*map(torch.from_numpy, (ptr, 8 * ptr, np.zeros((2, 392), int), x, x[:0])), torch.arange(2))
    with pytest.raises(ValueError, match=r"data\.neighbours is published: expected more than 9 nodes, got 9"):
        superpixels.with_published_neighbours(GraphDataset("mnist", SPECS["mnist"].task, 3, 1, {"train": flat}, {}))


def test_the_published_order_is_that_of_older_numpy():
    # Found by NumPy 1.23.5 in float64, whose partial sort is that of the published code.
    random = np.random.RandomState(0)
    pos = np.round(random.random_sample((20, 2)) * 8) / 8
    neighbours, _ = superpixels.published(np.array([0, 20]), pos)
    assert neighbours[:3].tolist() == [
        [1, 3, 6, 9, 11, 15, 16, 18],
        [2, 4, 5, 7, 11, 14, 16, 18],
        [1, 11, 12, 14, 15, 16, 17, 18],
    ]


def test_edges_are_made_by_the_published_rule(tmp_path):
    ptr, x = features(sizes=(12, 30, 40))
    _, edge_index, weight = rebuilt(ptr, x)
    flat = FlatGraphs(*map(torch.from_numpy, (ptr, 8 * ptr, edge_index, x, weight)), torch.arange(3))
    splits = dict.fromkeys(("train", "val", "test"), flat)
    dataset = GraphDataset("mnist", SPECS["mnist"].task, 3, 1, splits, {})
    write_pack(dataset, tmp_path / "mnist.safetensors")
    as_read, anew = (
        open_for(find_recipe(name), tmp_path, tmp_path / "mnist.safetensors").splits["train"]
        for name in ("mnist", "mnist:published-neighbours")
    )
    assert torch.equal(as_read.edge_index, flat.edge_index)
    neighbours, weights = superpixels.published(ptr, x[:, -2:])
    expected = {
        (node, neighbour): weight
        for start, stop in itertools.pairwise(ptr)
        for node in range(start, stop)
        for neighbour, weight in zip((start + neighbours[node]).tolist(), weights[node].tolist(), strict=True)
    }
    assert dict(zip(map(tuple, anew.ends().T.tolist()), anew.edge_attr[:, 0].tolist(), strict=True)) == expected
    assert anew.sorted_by_destination() is anew
    assert torch.equal(anew.x, as_read.x)


def test_only_superpixels_have_a_published_rule():
    with pytest.raises(ValueError, match=r"data\.dataset where data\.neighbours is published: expected one of"):
        superpixels.with_published_neighbours(GraphDataset("pattern", SPECS["pattern"].task, 3, None, {}, {}))
