"""Shards on disk: written whole, read one at a time, and what is damaged or mixed up is an error of one line."""

import json

import pytest
import torch

from gssc.datasets.flat import FlatGraphs, GraphDataset
from gssc.files import DamagedFileError
from gssc.shards import assign_nodes, open_shards, write_shards
from gssc.tasks import Task


def make_dataset(nodes: int = 12) -> GraphDataset:
    ends = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    parts = torch.arange(nodes) % 3
    ptr, edge_ptr = torch.tensor([0, nodes]), torch.tensor([0, nodes - 1])
    x, y = torch.randn(nodes, 2), parts.clone()
    graph = [ptr, edge_ptr, ends, x, None, y]
    splits = {name: FlatGraphs(*graph, mask=parts == number) for number, name in enumerate(("train", "val", "test"))}
    return GraphDataset("line", Task("node", "multiclass", 3, "accuracy"), 2, None, splits, {})


def write(folder, method="propagation", **about):
    dataset = make_dataset()
    part, used = assign_nodes(dataset.splits["train"].edge_index, 12, 2, method)
    write_shards(folder, dataset, part, 2, {}, {"recipe": {"name": "r"}, "method": used, **about})
    return dataset


def test_shards_are_the_graph(tmp_path):
    dataset = write(tmp_path / "shards")
    opened = open_shards(tmp_path / "shards")
    assert opened.ranks == 2
    assert opened.about() == json.loads(json.dumps(dataset.about()))
    assert opened.content() == dataset.content()
    assert (opened.task, opened.manifest["nodes"]) == (dataset.task, 12)
    shards = [opened.shard(rank) for rank in range(2)]
    for name, rows in (("x", dataset.splits["train"].x), ("val_mask", dataset.splits["val"].mask)):
        numbers = torch.cat([shard.tensors["nodes"] for shard in shards])
        assert torch.equal(torch.cat([shard.tensors[name] for shard in shards]), rows[numbers])
    assert shards[0].inputs["x"].dtype == torch.float32


def test_damaged_and_mixed_shards_are_refused(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b", "random")
    (tmp_path / "a" / "shard-1.safetensors").write_bytes((tmp_path / "b" / "shard-1.safetensors").read_bytes())
    raw = bytearray((tmp_path / "b" / "shard-0.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "b" / "shard-0.safetensors").write_bytes(raw)
    with pytest.raises(DamagedFileError, match=r"expected shard 1 of .*shards\.json, got another one"):
        open_shards(tmp_path / "a").shard(1)
    with pytest.raises(DamagedFileError, match=r"shard-0.safetensors: expected an intact .* got a wrong checksum"):
        open_shards(tmp_path / "b").shard(0)
    (tmp_path / "b" / "shards.json").unlink()
    with pytest.raises(DamagedFileError, match=r"shards\.json: expected a JSON file, got no such file"):
        open_shards(tmp_path / "b")
    with pytest.raises(ValueError, match="out: expected a new folder, or one of shards"):
        write(tmp_path / "b")
    write(tmp_path / "a")  # in place of those that were there
    assert open_shards(tmp_path / "a").shard(1).nodes == 12


def test_only_one_graph_with_masks_is_cut(tmp_path):
    dataset = make_dataset()
    dataset.splits["val"] = make_dataset().splits["val"]
    with pytest.raises(ValueError, match="data: expected one graph whose nodes are predicted, with masks"):
        write_shards(tmp_path / "a", dataset, torch.zeros(12, dtype=torch.long), 1, {}, {})
