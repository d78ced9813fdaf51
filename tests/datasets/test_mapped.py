"""A folder of arrays is the graph that a .pt file holds, piece by piece; what does not fit is an error of one line."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gssc.config import parse_recipe
from gssc.datasets import flat, open_own
from gssc.datasets.infer import moments, ready
from gssc.train.open_data import open_for


def save_both(place, columns="continuous", turned=False):
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(0, 20, (2, 70), generator=generator)
    x, edge_attr = torch.randn(20, 3, generator=generator), torch.randn(70, generator=generator)
    if columns == "categories":
        x, edge_attr = (x > 0).long() + torch.arange(20).view(-1, 1) // 7, (edge_attr > 0).long()
    elif columns == "words":
        x = (torch.rand(20, 40, generator=generator) < 0.2).long()
    masks = {f"{name}_mask": torch.arange(20) % 3 == part for part, name in enumerate(("train", "val", "test"))}
    data = Data(x=x, edge_index=edges, edge_attr=edge_attr, y=torch.arange(20) % 4, **masks)
    torch.save(data, place / "graph.pt")
    (place / "graph").mkdir()
    for name, values in data.to_dict().items():
        if name == "edge_index":
            values = values.int().T if turned else values
        np.save(place / "graph" / f"{name}.npy", values.numpy())
    return place / "graph.pt", place / "graph"


@pytest.mark.parametrize("columns", ["continuous", "categories", "words"])
def test_a_folder_is_the_graph_of_a_file(tmp_path, monkeypatch, columns):
    file, folder = save_both(tmp_path, columns, turned=columns == "continuous")
    expected = open_own(file)
    monkeypatch.setattr(flat, "PIECE", 12)
    dataset = open_own(folder)
    assert dataset.mapped
    assert (dataset.task, dataset.edge_features) == (expected.task, expected.edge_features)
    assert dataset.node_features == expected.node_features
    for name, split in expected.splits.items():
        assert torch.equal(dataset.splits[name].mask, split.mask)
        assert torch.equal(dataset.splits[name].edge_index.long(), split.edge_index)
        for column in ("x", "edge_attr"):
            found = ready(dataset, column, getattr(dataset.splits[name], column))
            torch.testing.assert_close(found, getattr(split, column), rtol=1e-6, atol=1e-7)
    content = dataset.content()
    assert content == open_own(folder).content()
    np.save(folder / "x.npy", np.load(folder / "x.npy")[::-1])
    assert content != open_own(folder).content()


def test_moments_are_those_of_all_marked_rows(monkeypatch):
    rows, mask = torch.randn(29, 3), torch.arange(29) % 4 == 1
    mean, deviation = moments(rows, mask)
    assert torch.equal(mean, rows[mask].double().mean(0))
    assert torch.equal(deviation, rows[mask].double().std(0, unbiased=False))
    monkeypatch.setattr(flat, "PIECE", 3 * 2)
    for found, expected in zip(moments(rows, mask), (mean, deviation), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-15)
    assert moments(rows, mask & False)[1].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("edge_index", np.tile([[0], [20]], 70), r"edge_index: expected node numbers in 0\.\.19, got 0\.\.20"),
        ("edge_index", np.tile([[2], [-1]], 70), r"edge_index: expected node numbers in 0\.\.19, got -1\.\.2"),
        ("edge_index", np.zeros((2, 3)), "edge_index: expected int32 or int64, got torch.float64"),
        ("edge_index", np.zeros((3, 4), dtype=np.int32), r"edge_index: expected shape \[2, \*\]"),
        ("x", np.zeros((19, 2)), r"x: expected shape \[20, \*\]"),
        ("edge_attr", np.zeros(3), r"edge_attr: expected shape \[70, \*\]"),
        ("train_mask", np.ones(5, dtype=bool), "train_mask: expected one truth value for each of 20 nodes"),
        ("train-mask", np.ones(20, dtype=bool), "array in .*: expected .* got 'train-mask'"),
        ("x", np.array([{}] * 20), "data: expected an array of numbers in a .npy file"),
        ("x", b"", "data: expected an array of numbers in a .npy file"),
        ("x", b"\x93NUMPY\x01\x00v\x00{'descr'", "data: expected an array of numbers in a .npy file"),
        (
            "y",
            np.arange(20, dtype=np.uint16),
            r"data: .* got .*y.npy \(torch.uint16; PyTorch computes with signed ones\)",
        ),
        ("y", np.array(3), r"x: expected shape \[1, \*\]"),
        ("y", None, "data: expected a folder with y.npy"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path, name, values, said):
    _, folder = save_both(tmp_path)
    if values is None:
        (folder / f"{name}.npy").unlink()
    elif isinstance(values, bytes):
        (folder / f"{name}.npy").write_bytes(values)
    else:
        np.save(folder / f"{name}.npy", values, allow_pickle=True)
    with pytest.raises(ValueError, match=said):
        open_own(folder)


def test_folders_are_for_partitions(tmp_path):
    _, folder = save_both(tmp_path)
    recipe = parse_recipe({"name": "own", "data": {"dataset": "own", "file": str(folder)}})
    with pytest.raises(ValueError, match=r"data: expected a file \(a folder of arrays is for gssc partition\)"):
        open_for(recipe, tmp_path)
