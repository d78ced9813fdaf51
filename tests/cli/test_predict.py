"""From a user's file to predictions: train, evaluate, predict, and the numbers agree."""

import csv
import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from graphs import cycle
from torch_geometric.data import Data
from typer.testing import CliRunner

from gssc.cli import app, trained
from gssc.datasets.inputs import open_inputs
from gssc.files import load_tensors, read_json
from gssc.train import loaded, threads

runner = CliRunner()
SMALL = ["model.layers=1", "model.channels=8", "spectrum.k=4", "spectrum.rwse=0", "train.tensorboard=false"]


def rings(count: int, node_level: bool = False) -> list[Data]:
    torch.manual_seed(0)
    out = []
    for _ in range(count):
        n = int(torch.randint(3, 9, (1,)))
        y = torch.randint(3, (n,)) if node_level else torch.tensor([float(n)])
        out.append(Data(x=torch.randn(n, 2), edge_index=cycle(n).edge_index, y=y))
    return out


def run(*words: str) -> str:
    result = runner.invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def table(path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_graphs_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    graphs = rings(40)
    for number, graph in enumerate(graphs):
        graph.split = "val" if number % 5 == 0 else "test" if number % 5 == 1 else "train"
    data, out = tmp_path / "rings.pt", tmp_path / "out"
    torch.save(graphs, data)
    shown = run("train", "--data", str(data), *SMALL, "train.epochs=2", "--out", str(out), "--device", "cpu")
    assert "regression of 1 target per graph" in shown
    seed = out / "seed-0"
    assert read_json(seed / "summary.json")["metric"] == "mae"

    # The test graphs, in their order, from a file of their own: what the run recorded, bit by bit.
    recorded, _ = load_tensors(seed / "predictions.safetensors")
    test = [graph for graph in graphs if graph.split == "test"]
    torch.save(test, tmp_path / "test.pt")
    run("predict", str(seed), str(tmp_path / "test.pt"), "-o", str(tmp_path / "p.csv"), "--device", "cpu")
    rows = table(tmp_path / "p.csv")
    assert list(rows[0]) == ["graph", "prediction"]
    values = np.array([np.float32(row["prediction"]) for row in rows])
    assert np.array_equal(values, recorded["prediction"][:, 0].numpy())
    error = np.abs(values - np.array([float(graph.y) for graph in test])).mean()
    assert error == pytest.approx(read_json(seed / "summary.json")["test"], rel=1e-5)

    # Other batches agree to rounding.
    words = ["predict", str(seed), str(tmp_path / "test.pt"), "-o", str(tmp_path / "q.csv"), "--batch-size", "1"]
    run(*words, "--device", "cpu")
    again = np.array([float(row["prediction"]) for row in table(tmp_path / "q.csv")])
    np.testing.assert_allclose(again, values, rtol=1e-5)

    # Of several seeds the mean.
    run("train", "--data", str(data), *SMALL, "train.epochs=2", "--seeds", "1", "--out", str(out), "--device", "cpu")
    words = ["predict", str(out), str(tmp_path / "test.pt"), "-o", str(tmp_path / "m.csv"), "--device", "cpu"]
    assert run(*words).endswith("m.csv, the mean of 2 seeds\n")
    other, _ = load_tensors(out / "seed-1" / "predictions.safetensors")
    mean = np.array([float(row["prediction"]) for row in table(tmp_path / "m.csv")])
    np.testing.assert_allclose(mean, (values + other["prediction"][:, 0].numpy()) / 2, rtol=1e-5)


def test_classes_of_nodes(tmp_path, monkeypatch):
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    graphs = rings(20, node_level=True)
    torch.save(graphs, tmp_path / "nodes.pt")
    out = tmp_path / "out"
    words = ["train", "--data", str(tmp_path / "nodes.pt"), *SMALL, "train.epochs=1", "--out", str(out)]
    run(*words, "--device", "cpu")
    run("predict", str(out / "seed-0"), str(tmp_path / "nodes.pt"), "-o", str(tmp_path / "p.csv"), "--device", "cpu")
    rows = table(tmp_path / "p.csv")
    assert len(rows) == sum(graph.num_nodes for graph in graphs)
    assert list(rows[0]) == ["graph", "node", "class", "probability_0", "probability_1", "probability_2"]
    probabilities = np.array([[float(row[f"probability_{i}"]) for i in range(3)] for row in rows])
    np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-5)
    assert [int(row["class"]) for row in rows] == probabilities.argmax(1).tolist()


def test_one_large_graph_with_masks(tmp_path, monkeypatch):
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    torch.manual_seed(0)
    n = 60
    part = torch.randint(3, (n,))
    graph = Data(x=torch.randn(n, 3), edge_index=cycle(n).edge_index, y=(torch.arange(n) % 3))
    graph.train_mask, graph.val_mask, graph.test_mask = part == 0, part == 1, part == 2
    torch.save([graph], tmp_path / "one.pt")
    out = tmp_path / "out"
    words = ["train", "--data", str(tmp_path / "one.pt"), *SMALL, "train.epochs=2", "--out", str(out)]
    run(*words, "--device", "cpu")
    recorded, _ = load_tensors(out / "seed-0" / "predictions.safetensors")
    assert recorded["prediction"].shape == (int((part == 2).sum()), 3)
    assert torch.equal(recorded["target"], graph.y[part == 2])


def test_molecules(tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    rings_of = ("C1CC1", "C1CCC1", "C1CCCC1", "c1ccccc1", "c1ccncc1", "c1ccoc1", "C1CCNCC1", "C1CCOC1")
    smiles = ["C" * n + ring for n in range(1, 5) for ring in rings_of]
    lines = [f"{text},{len(text)}.5" for text in smiles]
    (tmp_path / "m.csv").write_text("structure,size\n" + "\n".join(lines) + "\n")
    (tmp_path / "new.smi").write_text("CCO\nc1ccccc1O ethanol-like name\n")
    words = ["train", "--csv", str(tmp_path / "m.csv"), "--smiles-column", "structure", "--target-column", "size"]
    out = tmp_path / "out"
    shown = run(*words, "--split", "scaffold", *SMALL, "train.epochs=1", "--out", str(out), "--device", "cpu")
    assert "regression" in shown
    run("evaluate", str(out / "seed-0"), "--device", "cpu")
    run("predict", str(out / "seed-0"), str(tmp_path / "new.smi"), "-o", str(tmp_path / "p.csv"), "--device", "cpu")
    assert len(table(tmp_path / "p.csv")) == 2
    (tmp_path / "bad.smi").write_text("CCO\nC(\n")
    with pytest.raises(ValueError, match=r"2|row"):
        run("predict", str(out / "seed-0"), str(tmp_path / "bad.smi"), "-o", str(tmp_path / "bad.csv"))
    assert not (tmp_path / "bad.csv").exists()


def test_molecules_for_a_model_of_zinc(tmp_path):
    pytest.importorskip("rdkit")
    import yaml

    from gssc.files import save_tensors
    from gssc.recipes import find_recipe
    from gssc.train.build import build_model

    small = find_recipe("zinc-12k").override(["model.layers=1", "model.channels=8", "model.rwse_channels=4"])
    about = {"name": "zinc-12k", "task": {"level": "graph", "kind": "regression", "outputs": 1, "metric": "mae"}}
    about |= {"node_features": [28], "edge_features": [4], "standardize": {}}
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "config.yaml").write_text(yaml.safe_dump(small.to_dict()))
    (run_folder / "dataset.json").write_text(json.dumps(about))
    save_tensors(run_folder / "model.safetensors", build_model(small, about).state_dict(), {})
    (tmp_path / "m.smi").write_text("CCO ethanol, pure\n[B]\nc1ccccc1\nC(\nOCC again\n")
    words = ["predict", str(run_folder), str(tmp_path / "m.smi"), "-o", str(tmp_path / "p.csv"), "--device", "cpu"]
    with pytest.raises(ValueError, match=r"m\.smi line 2: expected atoms of the 28 types"):
        run(*words)
    assert "2 molecules left out that cannot be used\n" in run(*words, "--skip-invalid")
    rows = table(tmp_path / "p.csv")
    assert list(rows[0]) == ["graph", "smiles", "name", "prediction"]
    assert [(row["graph"], row["smiles"], row["name"]) for row in rows] == [
        ("0", "CCO", "ethanol, pure"),
        ("2", "c1ccccc1", ""),
        ("4", "OCC", "again"),
    ]
    first, _, last = (float(row["prediction"]) for row in rows)
    assert first == pytest.approx(last, rel=1e-4)  # one molecule, written twice
    for content, message in (("", "no columns"), ("smiles\n", "no rows")):
        (tmp_path / "empty.csv").write_text(content)
        with pytest.raises(ValueError, match=rf"csv: expected .* got {message} in .*empty\.csv"):
            run("predict", str(run_folder), str(tmp_path / "empty.csv"), "--device", "cpu")


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_opened(tmp_path):
    (tmp_path / "own.smi").write_text("CCO\n")
    (tmp_path / "same.csv").symlink_to(tmp_path / "own.smi")
    (tmp_path / "plain").write_text("")
    for out, message in (
        ("own.smi", "another file than the input, got .*own.smi"),
        ("same.csv", "another file than the input, got .*same.csv"),
        ("", "a file to write, got a folder"),
        ("plain/p.csv", "a file in a folder that can be written, got .*plain is none"),
        ("plain/deep/p.csv", "a file in a folder that can be written, got .*plain is none"),
    ):
        with pytest.raises(ValueError, match=rf"\A-o: expected {message}"):
            run("predict", "no such model", str(tmp_path / "own.smi"), "-o", str(tmp_path / out))
    assert (tmp_path / "own.smi").read_text() == "CCO\n"


def test_a_new_folder_for_the_predictions_waits_for_them(tmp_path):
    with pytest.raises(ValueError, match="no such model"):
        run("predict", "no such model", str(tmp_path / "own.smi"), "-o", str(tmp_path / "new" / "deep" / "p.csv"))
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def molecule_runs(tmp_path_factory):
    """OUT of two seeds that predict two numbers of molecules."""
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("molecules")
    rings_of = ("C1CC1", "C1CCC1", "C1CCCC1", "c1ccccc1", "c1ccncc1", "c1ccoc1")
    smiles = ["C" * n + ring for n in range(1, 4) for ring in rings_of]
    lines = [f"{text},{len(text)}.5,{text.count('c')}.5" for text in smiles]
    (folder / "m.csv").write_text("structure,size,aromatic\n" + "\n".join(lines) + "\n")
    words = ["--csv", str(folder / "m.csv"), "--smiles-column", "structure", "--target-column", "size, aromatic"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GSSC_CACHE", str(folder / "cache"))
        run(
            "train", *words, *SMALL, "train.epochs=1", "--seeds", "0-1", "--out", str(folder / "out"), "--device", "cpu"
        )
    return folder / "out"


def predicted(source, inputs, out, *words):
    shown = run("predict", str(source), str(inputs), "-o", str(out), *words, "--device", "cpu")
    return table(out), shown


def test_columns_of_ones_own_stay_and_outputs_have_names(molecule_runs, tmp_path):
    rows = [["7", "CCO", " ethanol, pure ", "0.5"], ["8", "c1ccccc1", "benzene"], ["9", "CN", "", "x"]]
    with (tmp_path / "new.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "Structure", "called", "prediction_size"], *rows])
    words = ["--smiles-column", "Structure"]
    found, _ = predicted(molecule_runs / "seed-0", tmp_path / "new.csv", tmp_path / "p.csv", *words)
    assert list(found[0]) == [
        "graph", "id", "Structure", "called", "prediction_size", "prediction_size_", "prediction_aromatic"
    ]  # fmt: skip
    assert [row["called"] for row in found] == ["ethanol, pure", "benzene", ""]
    assert [row["prediction_size"] for row in found] == ["0.5", "", "x"]
    assert all(float(row["prediction_size_"]) for row in found)


def test_the_spread_over_seeds_is_told(molecule_runs, tmp_path):
    (tmp_path / "new.smi").write_text("CCO\nc1ccccc1O phenol\n")
    both, _ = predicted(molecule_runs, tmp_path / "new.smi", tmp_path / "p.csv")
    outputs = ["prediction_size", "prediction_aromatic"]
    assert list(both[0]) == ["graph", "smiles", "name", *outputs, *(f"{name}_std" for name in outputs)]
    single = [predicted(molecule_runs / f"seed-{n}", tmp_path / "new.smi", tmp_path / f"{n}.csv")[0] for n in (0, 1)]
    for name in outputs:
        values = np.array([[float(row[name]) for row in rows] for rows in single])
        for place, expected in ((name, values.mean(0)), (f"{name}_std", values.std(0, ddof=1))):
            np.testing.assert_allclose([float(row[place]) for row in both], expected, rtol=1e-4)


@pytest.mark.parametrize("ending", ["csv", "smi", "pt"])
def test_files_are_read_and_written_in_pieces(molecule_runs, tmp_path, monkeypatch, ending):
    smiles = ["C" * n + "O" for n in range(1, 24)]
    if ending == "pt":
        flat = read_inputs_of(smiles, molecule_runs)
        torch.save(flat, tmp_path / "new.pt")
    else:
        (tmp_path / f"new.{ending}").write_text("\n".join([*(["smiles"] if ending == "csv" else []), *smiles]))
    whole, shown = predicted(molecule_runs, tmp_path / f"new.{ending}", tmp_path / "whole.csv", "--batch-size", "4")
    together, sizes = loaded.predict_together, []

    def watched(models, graphs, batch_size):
        sizes.append(graphs.num_graphs)
        return together(models, graphs, batch_size)

    looks = []
    way = nullcontext(lambda: looks.append(1))
    monkeypatch.setattr(threads, "giving_way", lambda say, wanted: way)
    monkeypatch.setattr(loaded, "predict_together", watched)
    monkeypatch.setattr(trained, "PIECE", 10)
    pieces, _ = predicted(molecule_runs, tmp_path / f"new.{ending}", tmp_path / "pieces.csv", "--batch-size", "4")
    assert sizes == [8, 8, 7]
    assert len(looks) == 3  # threads give way between them
    assert pieces == whole
    assert "23 predictions written" in shown
    assert [row["smiles"] for row in whole] == smiles


def read_inputs_of(smiles, source):
    """PyG graphs of molecules, with their names."""
    inputs = open_inputs(smiles, read_json(source / "seed-0" / "dataset.json")).graphs
    graphs = []
    for number, text in enumerate(smiles):
        one = inputs.part(number, number + 1, "graph")
        graphs.append(Data(x=one.x, edge_index=one.edge_index, edge_attr=one.edge_attr, smiles=text))
    return graphs


def test_pieces_without_a_molecule_are_passed_over(molecule_runs, tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "PIECE", 2)
    (tmp_path / "new.smi").write_text("C(\nC(\nCCO\nC(\nCN\n")
    words = ["--skip-invalid", "--batch-size", "2"]
    rows, shown = predicted(molecule_runs, tmp_path / "new.smi", tmp_path / "p.csv", *words)
    assert [row["graph"] for row in rows] == ["2", "4"]
    assert "3 molecules left out" in shown
    (tmp_path / "new.smi").write_text("C(\nC(\nC(\n")
    with pytest.raises(ValueError, match="SMILES: expected one or more molecules, got none among 3 rows"):
        predicted(molecule_runs, tmp_path / "new.smi", tmp_path / "none.csv", *words)
    (tmp_path / "new.smi").write_text("CCO\nCN\nC(\n")
    with pytest.raises(ValueError, match=r"new\.smi line 3: expected a SMILES"):
        predicted(molecule_runs, tmp_path / "new.smi", tmp_path / "none.csv", "--batch-size", "2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.smi", "p.csv"]
