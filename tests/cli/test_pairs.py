"""Link prediction and labels of pairs, from a user's file to predictions."""

import csv
import json

import numpy as np
import pytest
import torch
from edge_pairs import link_split, near_graph
from torch_geometric.loader import DataLoader
from typer.testing import CliRunner

import gssc
from gssc.cli import app
from gssc.datasets import open_own
from gssc.files import load_tensors
from gssc.molecules.supported import why_not_model, why_not_run
from gssc.recipes import own_recipe
from gssc.train.build import build_model, build_stores
from gssc.train.open_data import suited
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer

CPU = torch.device("cpu")
SMALL = {"model.layers": 1, "model.channels": 8, "spectrum.k": 4, "spectrum.rwse": 0, "train.tensorboard": False}
OVERRIDES = [f"{key}={json.dumps(value)}" for key, value in SMALL.items()]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))


def run(*words):
    result = CliRunner().invoke(app, [*map(str, words), "--device", "cpu"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def weights(folder):
    return load_tensors(folder / "model.safetensors")[0]


def test_links_without_negatives_from_training_to_predictions(tmp_path):
    parts = link_split(near_graph(), add_negative_train_samples=False)
    data, out = tmp_path / "links.pt", tmp_path / "out"
    torch.save(parts, data)
    shown = run("train", "--data", data, *OVERRIDES, "train.epochs=3", "--out", out)
    assert "1 yes-no label per pair of nodes, metric auroc" in shown
    assert "the same bits" in run("evaluate", out / "seed-0")
    # Without labels, and the test part alone: what the run recorded, bit by bit.
    new = parts[2].clone()
    del new.edge_label
    torch.save(new, tmp_path / "new.pt")
    run("predict", out / "seed-0", tmp_path / "new.pt", "-o", tmp_path / "p.csv")
    rows = table(tmp_path / "p.csv")
    assert list(rows[0]) == ["graph", "source", "target", "probability"]
    assert [[int(row["source"]), int(row["target"])] for row in rows] == new.edge_label_index.T.tolist()
    recorded = load_tensors(out / "seed-0" / "predictions.safetensors")[0]
    values = np.array([np.float32(row["probability"]) for row in rows])
    assert np.array_equal(values, recorded["prediction"][:, 0].numpy())
    assert torch.equal(recorded["target"], parts[2].edge_label.unsqueeze(1))
    # From Python it is the same training.
    settings = SMALL | {"train.epochs": 3}
    fitted = gssc.fit(parts, settings=settings, out=tmp_path / "fit", device="cpu", quiet=True)
    ours, theirs = weights(tmp_path / "fit" / "seed-0"), weights(out / "seed-0")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert np.array_equal(fitted.predict(new)[:, 0].numpy(), values)


def test_negatives_are_those_of_the_epoch_wherever_it_is_taken_up(tmp_path):
    torch.save([link_split(near_graph(20, seed), seed, neg_sampling_ratio=0.0) for seed in range(3)], tmp_path / "g.pt")
    dataset = open_own(tmp_path / "g.pt")
    recipe = own_recipe(tmp_path / "g.pt").override([*OVERRIDES, "train.batch_size=1"])

    def trainer():
        torch.manual_seed(0)
        store = build_stores(dataset, recipe, CPU, False)["train"]
        return Trainer(build_model(recipe, dataset.about()), store, dataset.task, recipe, 0, Processes())

    whole, parts, position = trainer(), trainer(), Position(2, 0, [])
    links = whole.store.y.clone()
    assert whole.run_epoch(Position(2, 0, []), lambda: False)
    assert not parts.run_epoch(position, lambda: position.step == 1)
    parts.store = trainer().store  # of another process
    assert parts.run_epoch(position, lambda: False)
    assert torch.equal(parts.store.pairs, whole.store.pairs)
    assert len(whole.store.pairs) == 2 * len(links) - 1
    torch.testing.assert_close(parts.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
    assert whole.run_epoch(Position(3, 0, []), lambda: False)
    assert not torch.equal(parts.store.pairs, whole.store.pairs)


def test_numbers_of_pairs_are_learned_and_kernels_that_cannot_say_why(tmp_path):
    graphs = []
    for seed in range(12):
        graph = near_graph(12, seed)
        graph.edge_label_index = torch.randint(12, (2, 30), generator=torch.Generator().manual_seed(seed))
        graph.edge_label = graph.x[graph.edge_label_index].sum(0).sum(1)
        graphs.append(graph)
    run_of = gssc.fit(graphs, settings=SMALL | {"train.epochs": 60, "optim.lr": 0.01}, device="cpu", quiet=True)
    spread = float(torch.cat([graph.edge_label for graph in graphs]).std())
    assert run_of.task.metric == "mae"
    assert run_of.summary["test"] < 0.5 * spread
    torch.save(graphs, tmp_path / "numbers.pt")
    dataset = open_own(tmp_path / "numbers.pt")
    assert why_not_run(run_of.recipe, dataset, CPU) == "the task is not regression of graphs but regression of edges"
    assert why_not_model(run_of.model) == "it does not predict graphs with a GSSC"
    # A loop of PyG's own gets the same numbers.
    with torch.no_grad():
        prepared = gssc.prepare(graphs[:4], gssc.LaplacianSpectrum(k=4, cache=False), progress=False)
        mean, std = (torch.tensor(values) for values in run_of.about["standardize"]["x"])
        for graph in prepared:
            graph.x = (graph.x - mean) / std
        (batch,) = DataLoader(prepared, batch_size=4)
        raw = run_of.model(**gssc.model_inputs(batch))
    torch.testing.assert_close(run_of.task.predict(raw), run_of.predict(graphs[:4]), rtol=1e-4, atol=1e-4)


def test_settings_suit_pairs_unless_others_are_asked_for(tmp_path):
    graph = near_graph()
    said = []

    def settled(content, *asked):
        torch.save(content, tmp_path / "pairs.pt")
        dataset = open_own(tmp_path / "pairs.pt")
        return suited(own_recipe(tmp_path / "pairs.pt").override(asked), dataset, asked, said.append).model

    model = settled(link_split(graph))
    assert (model.layers, model.local, model.ordered_pairs) == (2, "gcn", False)
    assert "pairs of nodes, in one graph: model.ordered_pairs=false model.layers=2" in said[0]
    model = settled(link_split(graph, is_undirected=False), "model.layers=3")
    assert (model.layers, model.local, model.ordered_pairs) == (3, "gcn", True)
    assert not settled(link_split(graph, is_undirected=False), "model.ordered_pairs=false").ordered_pairs
    graph.edge_attr = torch.randn(graph.num_edges, 2)
    assert settled(link_split(graph)).local == "gatedgcn"  # which reads it
    many = settled([link_split(near_graph(20, seed), seed) for seed in range(2)])
    assert (many.layers, many.local) == (4, "gatedgcn")


def test_teachers_do_not_answer_for_pairs_that_are_drawn(tmp_path):
    torch.save(link_split(near_graph(), neg_sampling_ratio=0.0), tmp_path / "links.pt")
    words = [
        "train",
        "--data",
        str(tmp_path / "links.pt"),
        *OVERRIDES,
        "train.teachers=2",
        "--out",
        str(tmp_path / "o"),
    ]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "train.teachers: expected 0 where negative pairs are drawn in every epoch, got 2" in str(result.exception)
    assert not (tmp_path / "o" / "seed-0" / "summary.json").exists()
