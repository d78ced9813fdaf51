"""`gssc.fit` is the command for graphs in memory: the same weights, scores and files."""

import gc
import json

import numpy as np
import pytest
import torch
from graphs import complete, cycle
from torch.utils.data import Subset
from torch_geometric.data import Data, InMemoryDataset
from typer.testing import CliRunner

import gssc
from gssc.cli import app
from gssc.files import load_tensors

SMALL = {"train.epochs": 2, "model.layers": 1, "model.channels": 8, "model.rwse_channels": 4, "train.ema": 0.5}
OVERRIDES = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]


def command(*words):
    result = CliRunner().invoke(app, [*map(str, words), "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def rings(count=20):
    graphs = []
    for n in range(3, 3 + count):
        graph = cycle(n)
        graph.x, graph.y = torch.randint(3, (n, 1)), torch.tensor([n / 10])
        graphs.append(graph)
    return graphs


class Stored(InMemoryDataset):
    def __init__(self, graphs):
        super().__init__()
        self.data, self.slices = self.collate(graphs)


@pytest.mark.parametrize(
    "make", [list, Stored, lambda graphs: Subset(graphs, range(20))], ids=["list", "pyg", "subset"]
)
def test_it_is_what_the_command_makes_of_a_file(tmp_path, make):
    graphs = rings()
    torch.save(graphs, tmp_path / "graphs.pt")
    command("train", "--data", tmp_path / "graphs.pt", "--out", tmp_path / "command", *OVERRIDES)
    model = gssc.fit(make(graphs), settings=SMALL, out=tmp_path / "fit", device="cpu", quiet=True)
    ours, theirs = (load_tensors(tmp_path / run / "seed-0" / "model.safetensors")[0] for run in ("fit", "command"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    names = [{p.name for p in (tmp_path / run / "seed-0").iterdir()} for run in ("fit", "command")]
    assert names[0] == names[1]
    assert json.loads((tmp_path / "fit" / "summary.json").read_text())["test"]["mean"] == model.summary["test"]
    new = rings(4)
    assert torch.equal(model.predict(new), gssc.open_model(tmp_path / "command" / "seed-0").predict(new))


def test_what_is_saved_is_loaded_scored_and_predicted_with(tmp_path):
    graphs = rings()
    model = gssc.fit(graphs, settings=SMALL, device="cpu", quiet=True)
    predicted, place, score = model.predict(graphs[:3]), model.folder, model.summary["test"]
    model.save(tmp_path / "kept")
    assert place.exists()
    del model
    gc.collect()
    assert not place.parent.exists()  # what nobody asked to keep
    again = gssc.open_model(tmp_path / "kept")
    assert torch.equal(again.predict(graphs[:3]), predicted)
    assert isinstance(gssc.load_pretrained(tmp_path / "kept"), gssc.GSSC)
    again.save(tmp_path / "copy")
    for folder in ("kept", "copy"):
        assert f"recorded: {score:.5f}, the same bits" in command("evaluate", tmp_path / folder)
        assert not (tmp_path / folder / "checkpoints").exists()
    torch.save(graphs[:3], tmp_path / "new.pt")
    command("predict", tmp_path / "kept", tmp_path / "new.pt", "-o", tmp_path / "out.csv")
    table = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True)
    assert np.array_equal(table["prediction"].astype(np.float32), predicted[:, 0].numpy())
    with pytest.raises(ValueError, match="folder: expected a new one, got"):
        again.save(tmp_path / "kept")


def test_one_graph_with_masks(tmp_path):
    graph, part = complete(12), torch.arange(12) % 3
    graph.x, graph.y = torch.randn(12, 4), torch.arange(12) % 2
    graph.train_mask, graph.val_mask, graph.test_mask = part == 0, part == 1, part == 2
    model = gssc.fit(graph, settings=SMALL, device="cpu", quiet=True)
    assert model.task.level == "node"
    assert model.predict(graph).shape == (12, 1)  # 0 and 1 are a yes-no label


def test_molecules(tmp_path):
    pytest.importorskip("rdkit")
    smiles = [f"{'C' * n}O" for n in range(1, 13)]
    sizes = [n + 0.5 for n in range(12)]
    (tmp_path / "molecules.csv").write_text("\n".join(["smiles,target", *map("{},{}".format, smiles, sizes)]))
    table = ["--csv", tmp_path / "molecules.csv", "--target-column", "target"]
    command("train", *table, "--out", tmp_path / "command", *OVERRIDES)
    theirs = gssc.open_model(tmp_path / "command" / "seed-0").predict(["CCN"])
    for targets in (sizes, torch.tensor(sizes), np.array(sizes)):
        model = gssc.fit(smiles, targets, settings=SMALL, device="cpu", quiet=True)
        assert torch.equal(model.predict(["CCN"]), theirs)
    several = {"toxic": [n % 2 for n in range(12)], "soluble": [None, *[bool(n % 3) for n in range(11)]]}
    model = gssc.fit(smiles, several, settings=SMALL, device="cpu", quiet=True)
    assert (model.task.kind, model.task.outputs) == ("binary", 2)
    classes = gssc.fit(smiles, [n % 3 for n in range(12)], settings=SMALL, device="cpu", quiet=True)
    assert classes.task.kind == "multiclass"


def test_classes_of_their_own_become_plain_graphs(tmp_path):
    class Ring(Data):
        pass

    graphs = [Ring.from_dict({**graph.to_dict(), "origin": object()}) for graph in rings()]
    model = gssc.fit(graphs, settings=SMALL, out=tmp_path / "out", device="cpu", quiet=True)
    assert model.predict(graphs[:1]).shape == (1, 1)


@pytest.mark.parametrize(
    ("graphs", "targets", "message"),
    [
        ([], None, "graphs: expected PyG graphs, or a list of SMILES, got an empty list"),
        (3, None, "graphs: expected PyG graphs, or a list of SMILES, got int"),
        ("CCO", [1.0], "graphs: expected PyG graphs, or a list of SMILES, got str"),
        (["CCO", 3], [1.0, 2.0], "graphs: expected PyG graphs, or a list of SMILES, got int"),
        (["CCO"], None, "targets: expected a number for each of the SMILES, got none"),
        (["CCO", "C"], [1.0], "targets, target: expected 2 numbers, one for each of the SMILES, got 1"),
        (rings(3), torch.ones(3), "targets: expected none: y of the graphs, got some"),
        ({"graphs": 1}, None, "graphs: expected PyG graphs, or a list of SMILES, got dict"),
        (rings(2), None, "split: expected three or more graphs"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(graphs, targets, message, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match=rf"\A{message}") as error:
        gssc.fit(graphs, targets, settings=SMALL, device="cpu", quiet=True)
    assert "\n" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path):
    with pytest.raises(ValueError, match="out: expected a new folder"):
        gssc.fit(rings(), out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_settings_are_keys_of_the_recipe():
    with pytest.raises(ValueError, match="did you mean 'epochs'"):
        gssc.fit(rings(), settings={"train.epoch": 1}, quiet=True)


def test_a_wish_to_stop_is_passed_on(monkeypatch, tmp_path):
    monkeypatch.setattr("gssc.pretrained.fit.train_seeds", lambda *given: dict.fromkeys(given[2]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        gssc.fit(rings(), settings=SMALL, device="cpu", quiet=True)
    assert not list(tmp_path.iterdir())
