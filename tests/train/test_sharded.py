"""Training on shards: as one process on the whole graph, also where a process is killed and fewer go on."""

import json
import socket
from pathlib import Path

import pytest
import torch
from shard_ranks import SMALL, start, train_rank
from torch_geometric.data import Data
from typer.testing import CliRunner

from gssc.cli import app
from gssc.files import load_tensors


def write_graph(path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    edges = torch.randint(0, 60, (2, 240), generator=generator)
    edges = edges[:, (labels[edges[0]] == labels[edges[1]]) | (torch.arange(240) % 5 == 0)]
    x = torch.nn.functional.one_hot(labels, 3) + torch.randn(60, 3, generator=generator)
    masks = {f"{name}_mask": torch.arange(60) % 10 // 4 == part for part, name in enumerate(("train", "val", "test"))}
    torch.save(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=labels, **masks), path)


def free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def gssc(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["train_loss"] for line in (folder / "seed-0" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated:FutureWarning")
def test_shards_train_as_the_graph_and_go_on_with_fewer_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    write_graph(tmp_path / "graph.pt")
    for parts, *how in ((2, "--method", "random"), (1, "--no-spectra")):  # the last are solved when training begins
        said = gssc("partition", tmp_path / "graph.pt", *SMALL, "-p", parts, "-o", tmp_path / str(parts), *how)
        assert f"shard {parts} of {parts}" in said
    start(train_rank, 2, 2, free_port(), str(tmp_path), "two", False)
    start(train_rank, 2, 2, free_port(), str(tmp_path), "killed", True)
    assert "expected all 2 to answer within 6 s (--rank-timeout), got" in (tmp_path / "killed-0.txt").read_text()
    # One process goes on with the shard of all nodes, and another has the graph itself from the beginning.
    place = ["--device", "cpu", "--threads", 1, "--quiet"]
    gssc("train", "--shards", tmp_path / "1", *SMALL, "--out", tmp_path / "killed", "--resume", *place)
    gssc("train", "--data", tmp_path / "graph.pt", *SMALL, "--out", tmp_path / "one", *place)
    expected = losses(tmp_path / "one")
    tables = [
        load_tensors(tmp_path / out / "seed-0" / "predictions.safetensors")[0] for out in ("one", "two", "killed")
    ]
    for out, predictions in zip(("two", "killed"), tables[1:], strict=True):
        assert losses(tmp_path / out) == pytest.approx(expected, rel=1e-9)
        assert torch.equal(predictions["target"], tables[0]["target"])
        torch.testing.assert_close(predictions["prediction"], tables[0]["prediction"], rtol=1e-6, atol=1e-7)
    with pytest.raises(ValueError, match=r"--shards: expected a process for each .*node 2\), got 1"):
        gssc("train", "--shards", tmp_path / "2", *SMALL, "--out", tmp_path / "other", *place)
    with pytest.raises(ValueError, match=r"override: expected no change of data or spectrum"):
        gssc("train", "--shards", tmp_path / "2", "spectrum.k=5", "--out", tmp_path / "other", *place)
    with pytest.raises(ValueError, match=r"--shards: expected no other data with it"):
        gssc("train", "--shards", tmp_path / "2", "--data", tmp_path / "graph.pt")
