"""A recipe whose model is not what the kernels compute is refused in one line."""

import inspect
from dataclasses import fields, replace
from typing import get_args, get_type_hints

import pytest
import torch
from molecule_run import molecule_dataset, molecule_recipe

from gssc import GSSC
from gssc.config import ModelConfig
from gssc.molecules.supported import SOME_TAKEN, TAKEN, why_not_model, why_not_run
from gssc.nn import GSSCLayer, GSSConv
from gssc.nn.encoders import FeatureEncoder, GraphHead, RandomWalkEncoder
from gssc.nn.layer import FeedForward
from gssc.nn.local import GINE
from gssc.nn.phi import DeepSetPhi

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "overrides",
    [
        ("model.dropout_local=0.2", "model.dropout_global=0.5", "model.dropout_ffn=0.1"),
        ("model.kernel=channel", "model.out_proj=false", "model.pool=mean", "model.normalize=false"),
        ("model.self_term=false", "model.degree_scaling=false", "spectrum.rwse=0", "model.phi_channels=null"),
    ],
    ids=str,
)
def test_what_they_compute_is_taken_and_no_random_number_is_drawn(overrides):
    state = torch.random.get_rng_state()
    assert why_not_run(molecule_recipe(*overrides), molecule_dataset(), CPU) is None
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("model.selective=true", "its global part is not GSSC without selection"),
        ("model.glob=gsc", "its global part is not GSSC"),
        ("model.glob=attention", "its global part is not GSSC"),
        ("model.local=gin", "its local part is not GINE"),
        ("model.norm=layer", "its norms are not BatchNorms"),
        ("model.phi=polynomial", "phi is not a deep set"),
        ("model.channels=48", "its width is not of 16, 32, 64"),
        ("model.phi_channels=8", "the width of phi is not of 16, 32, 64"),
        ("model.diagonal_channels=4", "it has a diagonal encoding"),
        ("model.jumping_knowledge=true", "it has jumping knowledge"),
        ("model.pool=max", "it has max pooling"),
        ("model.head=linear", "its head does not halve the width twice"),
        ("spectrum.rwse=65", "it reads more than 64 random-walk steps"),
    ],
)
def test_other_models_are_refused(override, reason):
    assert why_not_run(molecule_recipe(override), molecule_dataset(), CPU) == reason


def test_features_and_weights_of_other_kinds_are_refused():
    recipe, dataset = molecule_recipe(), molecule_dataset()
    many, numbers = replace(dataset, node_features=[200, 57]), replace(dataset, node_features=3)
    assert (
        why_not_run(recipe, many, CPU)
        == why_not_run(recipe, numbers, CPU)
        == "nodes do not have at most 256 categories"
    )
    two, five = replace(dataset, edge_features=[2, 2]), replace(dataset, edge_features=[5])
    assert why_not_run(recipe, two, CPU) == why_not_run(recipe, five, CPU) == "edges do not have at most 4 types"
    assert why_not_run(recipe, replace(dataset, edge_features=None), CPU) is None
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert why_not_run(recipe, dataset, CPU) == "its weights are torch.float64"
    finally:
        torch.set_default_dtype(before)


def test_a_key_that_is_not_known_is_refused(monkeypatch):
    monkeypatch.delitem(SOME_TAKEN, "pool")
    assert why_not_model(molecule_recipe().model) == "they do not know model.pool"


# What a recipe and the modules can be asked for. Kernels that stand for all of a model have to compute a new option or
# refuse it: either way `gssc.molecules.supported` is to be looked at before it is added here.
OPTIONS = {
    GSSC: "out_channels channels layers node_features edge_features embedding_init rwse rwse_channels "
    "diagonal_channels local glob phi phi_channels kernel selective normalize self_term degree_scaling out_proj heads "
    "dropout_local dropout_global dropout_ffn norm level pool head jumping_knowledge degree_histogram recompute",
    GSSCLayer: "channels local glob dropout_local dropout_global dropout_ffn norm",
    GSSConv: "channels phi_channels kernel selective normalize self_term degree_scaling out_proj",
    GINE: "channels",
    FeedForward: "channels dropout",
    DeepSetPhi: "channels blocks",
    FeatureEncoder: "features channels name embedding_init",
    RandomWalkEncoder: "steps channels",
    GraphHead: "channels out_channels pool form",
}


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__name__)
def test_every_option_of_the_modules_is_known_here(kind):
    assert list(inspect.signature(kind).parameters) == OPTIONS[kind].split()


def test_every_key_of_a_recipes_model_is_known():
    assert not TAKEN & SOME_TAKEN.keys()
    assert {field.name for field in fields(ModelConfig)} == TAKEN | SOME_TAKEN.keys()
    # Of those that are taken with all their values, these are all.
    assert get_args(get_type_hints(ModelConfig)["kernel"]) == ("channel", "shared")
    assert get_args(get_type_hints(ModelConfig)["embedding_init"]) == ("normal", "xavier")
