"""Two processes that share every batch end where one process with the joint batch ends."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch
from small_run import SMALL, small_dataset, small_recipe

from gssc.files import load_tensors
from gssc.train import RunSettings, train
from gssc.train.evaluate import default_dtype
from gssc.train.processes import Processes

EXACT = ("train.precision=float64", "model.dropout_local=0", "model.dropout_global=0", "train.epochs=3")


def free_port() -> str:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return str(server.getsockname()[1])


def start(root, out, rank, port, extra):
    place = ["--data-root", str(root), "--out", str(root / out), "--cache", str(root / "cache"), "--device", "cpu"]
    command = [sys.executable, "-m", "gssc", "train", "cycles-3", *SMALL, *EXACT, *extra, *place, "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    # What torchrun sets.
    environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*processes):
    for process in processes:
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output


def losses(folder):
    lines = (folder / "seed-0" / "metrics.jsonl").read_text().splitlines()
    return [(json.loads(line)["train_loss"], json.loads(line)["val"]) for line in lines]


# Batches of 5 leave a last one of 2, and shares of unequal size.
@pytest.mark.parametrize("extra", [("train.batch_size=5", "model.local=gatedgcn")], ids=["gatedgcn"])
def test_same_result_as_one_process(tmp_path, extra):
    with default_dtype("float64"):
        dataset = small_dataset(tmp_path)
    alone = RunSettings(torch.device("cpu"), tmp_path / "cache", quiet=True)
    train(small_recipe(*EXACT, *extra), dataset, 0, tmp_path / "one" / "seed-0", alone)
    port = free_port()
    finish(*(start(tmp_path, "two", rank, port, extra) for rank in range(2)))
    for one, two in zip(losses(tmp_path / "one"), losses(tmp_path / "two"), strict=True):
        assert two == pytest.approx(one, rel=1e-9)
    files = [tmp_path / out / "seed-0" for out in ("one", "two")]
    predictions = [load_tensors(folder / "predictions.safetensors")[0]["prediction"] for folder in files]
    torch.testing.assert_close(predictions[1], predictions[0], rtol=1e-8, atol=1e-9)
    # A bias in front of a BatchNorm has no gradient but rounding, which AdamW scales up: weights agree less closely.
    weights = [load_tensors(folder / "model.safetensors")[0] for folder in files]
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)
    summaries = [json.loads((tmp_path / out / "seed-0" / "summary.json").read_text()) for out in ("one", "two")]
    assert summaries[1]["test"] == pytest.approx(summaries[0]["test"], rel=1e-9)


def test_one_process_shares_nothing():
    alone = Processes()
    graphs = torch.tensor([4, 2, 7])
    assert alone.share(graphs, 9) is graphs
    assert alone.sum(torch.tensor(2.0)) == 2.0
    assert alone.first
    assert not alone.any(False)


def test_shares_divide_a_batch_and_may_be_empty():
    graphs = torch.tensor([4, 2, 7])
    parts = [Processes(rank, 2).share(graphs, 9).tolist() for rank in range(2)]
    assert parts == [[4, 7], [2]]
    assert Processes(1, 2).share(graphs[:1], 9).tolist() == [9]
