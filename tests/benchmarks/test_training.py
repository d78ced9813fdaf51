"""The sides that the training benchmark compares are the same model."""

import pytest
import torch
from torch_geometric.loader import DataLoader

from benchmarks import training
from benchmarks.peers import PlainModel
from benchmarks.training import loader_steps, molecules
from gssc import model_inputs
from gssc.recipes import find_recipe
from gssc.spectra import prepare
from gssc.train.build import build_model, build_store, transforms

SMALL = ["model.channels=16", "model.layers=2", "model.rwse_channels=4", "model.phi_channels=8"]
ABOUT = {"task": {"outputs": 1, "level": "graph"}, "node_features": [28], "edge_features": [4]}


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(training, "GRAPHS", 6)


def both_models(recipe):
    torch.manual_seed(0)
    model = build_model(recipe, ABOUT)
    for parameter in model.parameters():  # not ones and zeros
        parameter.data += 0.1 * torch.randn_like(parameter)
    plain = PlainModel(recipe, 28, 4)
    plain.load_state_dict(model.state_dict())
    return model, plain


@pytest.mark.usefixtures("float64", "few")
def test_explicit_z_is_the_same_function():
    recipe = find_recipe("zinc-12k").override([*SMALL, "model.dropout_global=0", "model.dropout_ffn=0"])
    _, graphs, flat = molecules(None)
    prepared = prepare(graphs, *transforms(recipe.spectrum, recipe.model), progress=False)
    batch = next(iter(DataLoader(prepared, batch_size=6)))
    model, plain = both_models(recipe)
    expected, found = model(**model_inputs(batch)), plain(batch)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    # The store's batch is the loader's, up to the order of edges.
    store = build_store(flat, recipe, "graph", torch.device("cpu"), None)
    torch.testing.assert_close(model(**store.batch(torch.arange(6)).inputs), expected, rtol=0, atol=1e-10)
    for out in (expected, found):
        out.sum().backward()
    ours, theirs = ({name: p.grad for name, p in m.named_parameters()} for m in (model, plain))
    torch.testing.assert_close(theirs, ours, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("workers", [0, 1])
def test_loader_steps_train(workers):
    recipe = find_recipe("zinc-12k").override([*SMALL, "train.batch_size=4", "optim.lr=0.01"])
    _, graphs, _ = molecules(None)
    prepared = prepare(graphs, *transforms(recipe.spectrum, recipe.model), progress=False)
    for model in both_models(recipe):
        before = [parameter.detach().clone() for parameter in model.parameters()]
        steps = loader_steps(model, prepared, recipe, workers)
        assert [next(steps) for _ in range(4)] == [4, 2, 4, 2]
        assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
