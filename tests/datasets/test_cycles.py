import zipfile

import networkx as nx
import numpy as np
import pytest
import torch
from graphs import complete, dense_adjacency, random_graph
from hypothesis import given
from hypothesis import strategies as st

from gssc.datasets import cycle_counting, cycle_counts, cycles, load_dataset
from gssc.datasets.cycles import SIZES_AND_DEGREES, load_cycles, random_regular_graphs


def test_generated_where_no_file_is(tmp_path, monkeypatch):
    monkeypatch.setattr(cycles, "GRAPHS", 20)
    monkeypatch.setattr(cycles, "TRAIN", 8)
    monkeypatch.setattr(cycles, "VALIDATION", 4)
    splits = load_dataset("cycles-4", tmp_path, seed=3)
    assert {name: len(part) for name, part in splits.items()} == {"train": 8, "val": 4, "test": 8}
    assert splits["train"][0].y.shape == (splits["train"][0].num_nodes, 1)
    again = load_cycles(4, tmp_path, seed=3)
    assert torch.equal(splits["test"][0].edge_index, again["test"][0].edge_index)


def write(path, **change):
    arrays = {
        "n_nodes": np.array([3, 4], dtype=np.uint8),
        "n_edges": np.array([3, 2], dtype=np.uint8),
        "edge_u": np.array([0, 0, 1, 0, 2], dtype=np.uint8),
        "edge_v": np.array([1, 2, 2, 1, 3], dtype=np.uint8),
        "y": np.arange(28, dtype=np.int32).reshape(7, 4),
        "train_idx": np.array([1]),
        "val_idx": np.array([0]),
        "test_idx": np.array([], dtype=np.int64),
        **change,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def test_published_file_is_read(tmp_path):
    write(tmp_path / "cycles" / "raw" / "count_cycle.npz")
    splits = load_dataset("cycles-5", tmp_path)
    (graph,) = splits["train"]
    assert graph.num_nodes == 4
    assert graph.edge_index.tolist() == [[0, 2, 1, 3], [1, 3, 0, 2]]
    assert graph.y.view(-1).tolist() == [14.0, 18.0, 22.0, 26.0]
    assert splits["val"][0].num_edges == 6
    assert splits["test"] == []


@pytest.mark.parametrize("content", ["missing array", "not a file"])
def test_damaged_file(tmp_path, content):
    path = tmp_path / "cycles" / "raw" / "count_cycle.npz"
    write(path, edge_v=None)
    if content == "not a file":
        path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"count_cycle\.npz: expected the arrays"):
        load_dataset("cycles-3", tmp_path)


@pytest.mark.parametrize("head", ["{'descr': '<i8', 'shape': (3", "{'descr': ]", "((((", "\n  1\n 2"])
def test_heads_of_arrays_that_are_no_dictionary(tmp_path, head):
    path = tmp_path / "cycles" / "raw" / "count_cycle.npz"
    path.parent.mkdir(parents=True)
    text = head.ljust(117).encode() + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("y.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    with pytest.raises(ValueError, match=r"count_cycle\.npz: expected the arrays"):
        load_cycles(3, tmp_path)


def enumerate_cycles(data):
    graph = nx.from_numpy_array(dense_adjacency(data))
    counts = np.zeros((data.num_nodes, 4))
    for found in nx.simple_cycles(graph, length_bound=6):
        counts[found, len(found) - 3] += 1
    return counts


@given(st.integers(1, 9), st.floats(0.2, 1.0), st.integers(0, 10**6))
def test_counts_equal_enumeration(n, p, seed):
    data = random_graph(n, p, seed)
    counts = cycle_counts(torch.from_numpy(dense_adjacency(data))[None])[0]
    np.testing.assert_array_equal(counts.numpy(), enumerate_cycles(data))


def test_counts_of_a_complete_graph():
    counts = cycle_counts(torch.from_numpy(dense_adjacency(complete(7)))[None])[0]
    assert counts[0].tolist() == [6 * 5 / 2, 6 * 5 * 4 / 2, 6 * 5 * 4 * 3 / 2, 6 * 5 * 4 * 3 * 2 / 2]


@pytest.mark.parametrize(("n", "degree"), SIZES_AND_DEGREES)
def test_random_regular_graphs_are_simple_regular_and_different(n, degree):
    a = random_regular_graphs(20, n, degree, np.random.default_rng(0))
    assert (a == a.transpose(0, 2, 1)).all()
    assert (a.sum(2) == degree).all()
    assert not a[:, np.arange(n), np.arange(n)].any()
    assert len({matrix.tobytes() for matrix in a}) == 20
    # Far from the circulant they start from: an edge is present in about degree / (n - 1) of the graphs.
    assert abs(a[:, 0, 1].mean() - degree / (n - 1)) < 0.35


def test_dataset_has_the_stated_sizes_and_labels():
    data = cycle_counting(40, seed=1)
    assert sorted({graph.num_nodes for graph in data}) == [10, 15, 20, 30]
    for graph in data[:6]:
        n, degree = graph.num_nodes, dict(SIZES_AND_DEGREES)[graph.num_nodes]
        assert graph.num_edges == n * degree - 2 * n
        np.testing.assert_array_equal(graph.y.numpy(), enumerate_cycles(graph))


def test_same_seed_same_graphs():
    one, same, other = cycle_counting(8, seed=1), cycle_counting(8, seed=1), cycle_counting(8, seed=2)
    assert all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(one, same, strict=True))
    assert not all(torch.equal(a.edge_index, b.edge_index) for a, b in zip(one, other, strict=True))
