"""A model that is not, in every layer, what the kernels compute is refused in one line."""

import inspect

import pytest
import torch
from molecule_samples import molecule_model
from torch import nn
from torch.nn.utils import parametrizations, prune

from gssc import GSSC
from gssc.molecules.model import FlatModels
from gssc.molecules.supported import difference, why_not_model
from gssc.nn import GSSCLayer, GSSConv
from gssc.nn.encoders import FeatureEncoder, GraphHead, RandomWalkEncoder
from gssc.nn.layer import FeedForward
from gssc.nn.local import GINE
from gssc.nn.norm import BatchNorm
from gssc.nn.phi import DeepSetPhi

DROPOUTS = {"dropout_local": 0.2, "dropout_global": 0.5, "dropout_ffn": 0.1}
LAST = 3  # of four layers


class OtherLayer(GSSCLayer):
    pass


class OtherConv(GSSConv):
    pass


class Adapter(nn.Module):
    """Stands for a Linear, and has nothing of it."""

    def forward(self, x):
        return x


@pytest.mark.parametrize(
    "settings",
    [
        {},
        DROPOUTS,
        {"kernel": "channel", "out_proj": False, "pool": "mean", "normalize": False},
        {"self_term": False, "degree_scaling": False, "edge_features": None, "rwse": 0, "recompute": 1},
    ],
    ids=str,
)
def test_what_they_compute_is_taken_and_no_random_number_is_drawn(settings):
    model = molecule_model(layers=4, **settings)
    state = torch.random.get_rng_state()
    assert why_not_model(model) is None
    assert torch.equal(torch.random.get_rng_state(), state)


def replaced(name):
    def change(model):
        *path, last = name.split(".")
        setattr(model.get_submodule(".".join(path)), last, Adapter())

    return change


def option(name, value):
    def change(model):
        *path, last = name.split(".")
        setattr(model.get_submodule(".".join(path)), last, value)

    return change


def layer_of(kind, **settings):
    def change(model):
        options = {"kernel": "shared", "degree_scaling": True, "out_proj": True, **settings}
        rates = {"dropout_local": 0.2, "dropout_global": 0.5, "dropout_ffn": 0.1}
        rates |= {name: options.pop(name) for name in list(options) if name.startswith("dropout")}
        conv = options.pop("conv", GSSConv)(16, 16, **options)
        model.layers[LAST] = kind(16, GINE(16), conv, **rates)

    return change


def eps_of_gine(model):
    model.layers[LAST].local.eps.fill_(0.5)


def frozen(model):
    model.layers[LAST].feed_forward[0].weight.requires_grad_(False)


def tied(model):
    model.layers[LAST].feed_forward[0].weight = model.layers[0].feed_forward[0].weight


def without_statistics(model):
    model.layers[LAST].norm_ffn = BatchNorm(16, track_running_stats=False)


def longer_head(model):
    model.head.mlp.append(nn.Softplus())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (layer_of(OtherLayer), "layers.3 is a OtherLayer, not a GSSCLayer"),
        (layer_of(GSSCLayer, conv=OtherConv), "layers.3.glob is a OtherConv, not a GSSConv"),
        (layer_of(GSSCLayer, selective=True), "layers.3.glob.selective is not False"),
        (layer_of(GSSCLayer, kernel="channel"), "layers.3.glob.kernel is not 'shared'"),
        (layer_of(GSSCLayer, self_term=False), "layers.3.glob.self_term is not True"),
        (layer_of(GSSCLayer, out_proj=False), "layers.3.glob"),
        (layer_of(GSSCLayer, degree_scaling=False), "layers.3.glob"),
        (layer_of(GSSCLayer, dropout_local=0.1), "layers.3.dropout_local is not 0.2"),
        (layer_of(GSSCLayer, dropout_global=0.1), "layers.3.dropout_global is not 0.5"),
        (layer_of(GSSCLayer, dropout_ffn=0.2), "layers.3.feed_forward.2.p is not 0.1"),
        (option("layers.3.feed_forward.4", nn.Dropout(0.3)), "layers.3.feed_forward.4.p is not 0.1"),
        (option("layers.3.feed_forward.2", nn.AlphaDropout(0.1)), "layers.3.feed_forward.2 is a AlphaDropout"),
        (option("layers.3.feed_forward.1", nn.GELU()), "layers.3.feed_forward.1 is a GELU, not a ReLU"),
        (option("layers.3.local.nn.1", nn.SiLU()), "layers.3.local.nn.1 is a SiLU, not a ReLU"),
        (option("layers.3.norm_ffn.eps", 1e-3), "layers.3.norm_ffn.eps is not 1e-05"),
        (option("layers.3.norm_ffn.momentum", None), "layers.3.norm_ffn.momentum is not 0.1"),
        (option("layers.3.norm_local", nn.BatchNorm1d(16)), "layers.3.norm_local is a BatchNorm1d, not a BatchNorm"),
        (option("layers.3.scale", 2.0), "layers.3.scale is not 1.0"),
        (option("smooth", "ends"), "the model.smooth is not 'none'"),
        (option("layers.3.glob.temperature", 2.0), "layers.3.glob has a temperature that they do not know"),
        (option("layers.3.glob.gate", nn.Parameter(torch.ones(16))), "layers.3.glob.gate is (16,), not there"),
        (option("layers.3.glob.forward", print), "layers.3.glob has a forward that they do not know"),
        (lambda model: model.layers[LAST].glob.register_buffer("gate", torch.ones(16)), "layers.3.glob.gate is (16,)"),
        (option("layers.3.extra", nn.Identity()), "they do not know its layers.3.extra"),
        (replaced("layers.3.glob.lin_o"), "layers.3.glob.lin_o is a Adapter, not a Linear"),
        (replaced("layers.3.local.nn.2"), "layers.3.local.nn.2 is a Adapter, not a Linear"),
        (replaced("layers.0.feed_forward.2"), "layers.0.feed_forward.2 is a Adapter, not a Dropout"),
        (replaced("rwse_encoder.linear"), "rwse_encoder.linear is a Adapter, not a Linear"),
        (replaced("node_encoder.embeddings.0"), "node_encoder.embeddings.0 is a Adapter, not a Embedding"),
        (replaced("head"), "head is a Adapter, not a GraphHead"),
        (replaced("head.mlp.4"), "its head does not halve the width twice"),
        (replaced("phi.update.1.3"), "phi.update.1.3 is a Adapter, not a Linear"),
        (option("phi.embed.1.eps", 1e-3), "phi.embed.1.eps is not 1e-05"),
        (longer_head, "they do not know its head.mlp.5"),
        (eps_of_gine, "eps of GINE is not zero"),
        (frozen, "layers.3.feed_forward.0.weight is not trained"),
        (tied, "layers.3.feed_forward.0.weight is missing"),
        (without_statistics, "layers.3.norm_ffn.track_running_stats is not True"),
        (lambda model: prune.l1_unstructured(model.layers[LAST].glob.lin_o, "weight", 0.5), "glob.lin_o has hooks"),
        (lambda model: parametrizations.weight_norm(model.layers[LAST].feed_forward[0]), "feed_forward.0"),
        (lambda model: model.layers[LAST].glob.register_forward_hook(print), "layers.3.glob has hooks"),
        (lambda model: model.layers[LAST].glob.register_full_backward_hook(print), "layers.3.glob has hooks"),
        (lambda model: model.layers[LAST].local.register_propagate_forward_hook(print), "layers.3.local._propagate"),
        (lambda model: model.layers[LAST].norm_ffn.weight.register_hook(abs), "layers.3.norm_ffn.weight has hooks"),
        (lambda model: model.double(), "its weights are torch.float64"),
    ],
)
def test_a_change_of_one_place_is_refused(change, reason):
    model = molecule_model(layers=4, **DROPOUTS)
    change(model)
    answer = why_not_model(model)
    assert answer is not None
    assert reason in answer
    assert "\n" not in answer
    with pytest.raises(ValueError, match="models that the kernels for small graphs take"):
        FlatModels([model])


def test_models_of_two_kinds_are_not_taken_together():
    models = [molecule_model(dropout_global=rate) for rate in (0.2, 0.5)]
    assert [why_not_model(model) for model in models] == [None, None]
    with pytest.raises(ValueError, match=r"layers\.0\.dropout_global is not 0\.2"):
        FlatModels(models)


def test_options_that_are_functions_have_to_be_the_same():
    layer, other = nn.Identity(), nn.Identity()
    layer.act = other.act = torch.relu
    assert difference(layer, other) is None
    layer.act = torch.tanh
    assert ".act is not" in difference(layer, other)


# What the modules can be asked for. Kernels that stand for all of a model have to compute a new option or refuse it:
# either way `gssc.molecules.supported` is to be looked at before it is added here.
OPTIONS = {
    GSSC: "out_channels channels layers node_features edge_features embedding_init edge_embedding rwse rwse_channels "
    "diagonal_channels lappe_channels local glob phi phi_channels kernel selective normalize self_term degree_scaling "
    "out_proj kernel_channels in_proj degree_init degree heads smooth layer_scale dropout_input "
    "dropout_local dropout_global dropout_ffn norm level pool head jumping_knowledge degree_histogram recompute "
    "ordered_pairs plain",
    GSSCLayer: "channels local glob dropout_local dropout_global dropout_ffn norm scale plain",
    GSSConv: "channels phi_channels kernel selective normalize self_term degree_scaling out_proj "
    "kernel_channels in_proj degree_init",
    GINE: "channels",
    FeedForward: "channels dropout",
    DeepSetPhi: "channels blocks",
    FeatureEncoder: "features channels name embedding_init dropout",
    RandomWalkEncoder: "steps channels",
    GraphHead: "channels out_channels pool form narrowed",
}


@pytest.mark.parametrize("kind", OPTIONS, ids=lambda kind: kind.__name__)
def test_every_option_of_the_modules_is_known_here(kind):
    assert list(inspect.signature(kind).parameters) == OPTIONS[kind].split()
