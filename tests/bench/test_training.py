"""The sides that the training benchmark compares are the same model."""

import copy

import pytest
import torch
from torch_geometric.loader import DataLoader

from gssc import GSSC, GSSConv, model_inputs
from gssc.bench import training
from gssc.bench.training import ExplicitZ, explicit, loader_steps, molecules
from gssc.recipes import find_recipe
from gssc.spectra import prepare
from gssc.train.build import build_store, transforms


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(training, "GRAPHS", 6)


@pytest.mark.usefixtures("float64", "few")
@pytest.mark.parametrize(
    "change", [{"kernel": "shared", "out_proj": True}, {"kernel": "channel"}, {"self_term": False}]
)
def test_explicit_z_is_the_same_function(change):
    recipe = find_recipe("zinc-12k")
    _, graphs, flat = molecules(None)
    prepared = prepare(graphs, *transforms(recipe.spectrum, recipe.model), progress=False)
    batch = next(iter(DataLoader(prepared, batch_size=6)))
    torch.manual_seed(0)
    model = GSSC(1, 16, 2, node_features=[28], edge_features=[4], rwse=20, rwse_channels=4, local="gine", **change)
    other = explicit(copy.deepcopy(model))
    assert any(isinstance(module, ExplicitZ) for module in other.modules())
    assert not any(type(module) is GSSConv for module in other.modules())
    expected = model(**model_inputs(batch))
    torch.testing.assert_close(other(**model_inputs(batch)), expected, rtol=0, atol=1e-10)
    # The store's batch is the loader's, up to the order of edges.
    store = build_store(flat, recipe, "graph", torch.device("cpu"), None)
    torch.testing.assert_close(model(**store.batch(torch.arange(6)).inputs), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("few")
def test_loader_steps_train():
    recipe = find_recipe("zinc-12k").override(["train.batch_size=4", "optim.lr=0.01"])
    _, graphs, _ = molecules(None)
    prepared = prepare(graphs, *transforms(recipe.spectrum, recipe.model), progress=False)
    model = GSSC(1, 16, 1, node_features=[28], edge_features=[4], rwse=20, rwse_channels=4, local="gine")
    before = [parameter.detach().clone() for parameter in model.parameters()]
    steps = loader_steps(model, prepared, recipe)
    assert [next(steps) for _ in range(4)] == [4, 2, 4, 2]
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
