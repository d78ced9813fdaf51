import numpy as np
import pytest
import torch

from gssc.datasets import cycles, load_dataset
from gssc.datasets.cycles import load_cycles


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
