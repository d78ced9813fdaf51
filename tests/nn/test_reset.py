"""``reset_parameters`` of every public module: what construction draws, and nothing of what was before."""

import inspect
from functools import partial

import pytest
import torch
from torch import nn
from torch_geometric.nn import GATConv, GINEConv

import gssc
from gssc import GSSC, GSSCBlock, GSSCLayer, GSSConv
from gssc.nn.layer import FeedForward
from gssc.nn.phi import PHIS

C = 6
MAKERS = {
    "BatchNorm": lambda: gssc.nn.BatchNorm(C),
    "EigenvectorEncoder": lambda: gssc.nn.EigenvectorEncoder(C),
    "FeatureEncoder": lambda: gssc.nn.FeatureEncoder((5, 3), C, embedding_init="xavier"),
    "FeatureEncoder, continuous": lambda: gssc.nn.FeatureEncoder(4, C),
    "FeatureEncoder, none": lambda: gssc.nn.FeatureEncoder(None, C),
    "FeedForward": lambda: FeedForward(C, 0.1),
    "GINE": lambda: gssc.GINE(C),
    "GSSC": lambda: GSSC(1, C, 2, node_features=[4], edge_features=2, rwse=3, rwse_channels=1, diagonal_channels=1),
    "GSSC, own parts": lambda: GSSC(1, C, 2, local=GATConv(C, C), glob=lambda c: GSSConv(c, degree_scaling=True)),
    "GSSCBlock": lambda: GSSCBlock(C, GINEConv(nn.Sequential(nn.Linear(C, C)), train_eps=True), out_proj=True),
    "GSSCLayer": lambda: GSSCLayer(C, gssc.GatedGCN(C), GSSConv(C, selective=True), norm="layer"),
    "GSSConv": lambda: GSSConv(C, 3, degree_scaling=True, out_proj=True),
    "GSSConv, small": lambda: GSSConv(C, 3, "shared", degree_scaling=True, degree_init="small", in_proj=False),
    "GatedGCN": lambda: gssc.GatedGCN(C),
    "GraphHead": lambda: gssc.nn.GraphHead(C, 2),
    "LocalGCN": lambda: gssc.nn.LocalGCN(C),
    "LocalPNA": lambda: gssc.nn.LocalPNA(C, [1, 2, 3], edge_features=True),
    "MLPHead": lambda: gssc.nn.MLPHead(C, 2),
    "EdgeHead": lambda: gssc.nn.EdgeHead(C, 2),
    "RandomWalkEncoder": lambda: gssc.nn.RandomWalkEncoder(3, C),
    **{kind.__name__: partial(kind, C, 2) for kind in (gssc.nn.Exphormer, gssc.nn.Grit, gssc.nn.Performer)},
    "PolynormerAttention": lambda: gssc.nn.PolynormerAttention(C, 2),
    "GraphMamba": lambda: gssc.nn.GraphMamba(C),
    "SimpleAttention": lambda: gssc.nn.SimpleAttention(C),
    "SoftmaxAttention": lambda: gssc.SoftmaxAttention(C, 2),
    "SpectralDiagonalEncoder": lambda: gssc.nn.SpectralDiagonalEncoder(3, C),
    **{phi.__name__: partial(phi, C) for phi in PHIS.values()},
    **{name: getattr(gssc, name) for name in ("DiffusionPhi", "PageRankPhi", "ResistancePhi")},
}
# PyG's draw their weights more than once while they are made.
DRAW_TWICE = {"GINE", "GSSC, own parts", "GSSCBlock", "LocalGCN", "LocalPNA", "SpecformerPhi"}


def test_every_public_module_is_here():
    kinds = {name: getattr(module, name) for module in (gssc, gssc.nn) for name in module.__all__}
    modules = {name: kind for name, kind in kinds.items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    assert {name for name, kind in modules.items() if not inspect.isabstract(kind)} <= set(MAKERS)


def spoilt(name):
    module = MAKERS[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(7.0)
        for part in module.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.running_mean.fill_(7.0)
                part.num_batches_tracked.fill_(7)
    return module


@pytest.mark.parametrize("name", sorted(set(MAKERS) - DRAW_TWICE))
def test_it_draws_what_construction_draws(name):
    module = spoilt(name)
    torch.manual_seed(5)
    module.reset_parameters()
    torch.manual_seed(5)
    expected = MAKERS[name]().state_dict()
    for key, value in module.state_dict().items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("name", sorted(DRAW_TWICE))
def test_it_draws_as_construction_does(name):
    module, drawn, made = spoilt(name), [], []
    for _ in range(60):
        module.reset_parameters()
        drawn.append({key: value.clone() for key, value in module.named_parameters()})
        made.append(dict(MAKERS[name]().named_parameters()))
    for key in made[0]:
        ours, theirs = (torch.stack([draw[key] for draw in draws]).detach() for draws in (drawn, made))
        largest = float(theirs.abs().max())
        noise = 4.0 * largest / ours.numel() ** 0.5 if float(theirs.std()) else 0.0
        assert float(ours.abs().max()) <= 1.2 * largest, key
        assert abs(float(ours.std() - theirs.std())) <= noise, key
        assert abs(float(ours.mean() - theirs.mean())) <= noise, key


def test_two_resets_differ():
    module = MAKERS["GSSC"]()
    before = [parameter.clone() for parameter in module.parameters() if parameter.dim() > 1]
    module.reset_parameters()
    after = [parameter for parameter in module.parameters() if parameter.dim() > 1]
    assert not any(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_the_vector_of_graphs_without_features_begins_as_it_did():
    torch.manual_seed(3)
    expected = torch.randn(64)
    torch.manual_seed(3)
    assert torch.equal(gssc.nn.FeatureEncoder(None, 64).constant, expected)
