"""Parts of one's own in the model: any φ, any PyG convolution, any global layer that keeps the protocol."""

import pytest
import torch
from graphs import path, random_graph
from torch import nn
from torch_geometric.data import Batch
from torch_geometric.nn import GATv2Conv, SAGEConv

import gssc
from gssc import GSSC, LaplacianSpectrum, model_inputs
from gssc.testing import assert_batch_independent, assert_close, assert_permutation_equivariant


class MeanAndHeat(nn.Module):
    """A global layer as someone outside would write it: the mean of a graph, and heat that has spread for a while."""

    def __init__(self, channels, time=1.0):
        super().__init__()
        self.lin, self.time, self.calls = nn.Linear(channels, channels), time, 0

    def forward(self, x, phi, vectors, batch, context):
        self.calls += 1
        counts = context.ptr.diff().clamp(min=1).unsqueeze(1)
        graph = torch.zeros_like(x[:, 0], dtype=torch.long) if batch is None else batch
        mean = x.new_zeros(context.graphs, x.shape[1]).index_add(0, graph, x) / counts
        state = gssc.ops.to_state(vectors, x, context.ptr)
        heat = gssc.ops.from_state(vectors, torch.exp(-self.time * phi.mean(-1, keepdim=True)) * state, context.ptr)
        return self.lin(mean[graph] + heat)


class Plain(nn.Module):
    """The least that is asked for: no spectrum is read."""

    def forward(self, x, phi, vectors, batch, context):
        return x


def batch_of(*graphs):
    transform = LaplacianSpectrum(k=4)
    data = []
    for graph in graphs:
        graph.x = torch.randn(graph.num_nodes, 3)
        data.append(transform(graph))
    return Batch.from_data_list(data)


def model(**parts):
    return GSSC(out_channels=2, channels=8, layers=3, node_features=3, level="node", **parts).eval()


@pytest.mark.parametrize("glob", [MeanAndHeat, MeanAndHeat(8), lambda channels: MeanAndHeat(channels, 0.5), Plain()])
def test_a_global_layer_from_outside(glob):
    batch = batch_of(path(5), random_graph(7))
    net = model(glob=glob)
    assert net(**model_inputs(batch)).shape == (12, 2)
    parts = [layer.glob for layer in net.layers]
    assert len(set(map(id, parts))) == 3  # each layer has its own
    net.train()(**model_inputs(batch)).sum().backward()
    assert all(parameter.grad is not None for part in parts for parameter in part.parameters())


def test_it_keeps_the_symmetries_of_the_model(float64):
    net = model(glob=MeanAndHeat).double()

    def predict(data):
        return net(**model_inputs(data))

    graphs = [path(5), random_graph(7)]
    for graph in graphs:
        graph.x = torch.randn(graph.num_nodes, 3)
    transformed = [LaplacianSpectrum(k=4)(graph) for graph in graphs]
    assert_permutation_equivariant(predict, transformed[1])
    assert_batch_independent(predict, transformed)


def test_copies_of_a_module_have_weights_of_their_own():
    net = model(local=SAGEConv(8, 8), glob=MeanAndHeat(8))
    first, second, _ = (layer.local.lin_l.weight for layer in net.layers)
    assert not torch.equal(first, second)  # reset_parameters has drawn them anew
    assert net.layers[0].glob is not net.layers[1].glob


@pytest.mark.parametrize("local", [lambda c: GATv2Conv(c, c), SAGEConv(8, 8), SAGEConv((8, 8), 8)])
def test_any_pyg_convolution(local):
    assert model(local=local, glob="none")(**model_inputs(batch_of(path(5)))).shape == (5, 2)


@pytest.mark.parametrize(
    "phi",
    [
        gssc.DiffusionPhi(),
        gssc.PageRankPhi(),
        gssc.ResistancePhi(),
        gssc.PolynomialPhi(8),
        gssc.TransformerPhi,
        lambda channels: gssc.ElementwisePhi(channels, layers=1),
    ],
)
def test_every_phi_that_ships(phi):
    net = model(phi=phi, diagonal_channels=2)
    assert net.layers[0].glob.phi_channels == net.phi.channels
    assert net(**model_inputs(batch_of(path(5)))).shape == (5, 2)


def test_names_give_what_they_gave():
    batch = batch_of(path(5), random_graph(7))
    torch.manual_seed(0)
    by_name = model(local="gcn", glob="gssc", phi="elementwise")
    torch.manual_seed(0)
    by_parts = model(local=gssc.nn.LocalGCN, glob=lambda c: gssc.GSSConv(c, 8), phi=lambda c: gssc.ElementwisePhi(c))
    by_parts.load_state_dict(by_name.state_dict())
    assert_close(by_parts(**model_inputs(batch)), by_name(**model_inputs(batch)))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"glob": 3}, "glob: expected a name, a module or a function that makes one of its channels, got 3"),
        (
            {"glob": "hyena"},
            "glob: expected one of 'gssc', 'gsc', 'attention', 'performer', 'exphormer', 'grit', .* got 'hyena'",
        ),
        ({"local": lambda channels: 3}, "local: expected a function that returns a module, got int"),
        (
            {"phi": nn.Identity()},
            "phi: expected a module with an attribute channels, its number of channels",
        ),
    ],
)
def test_bad_input(parts, message):
    with pytest.raises(ValueError, match=message):
        model(**parts)


def test_no_name_of_pyg_means_something_else():
    from torch_geometric import nn as pyg

    clashes = [name for name in gssc.__all__ if hasattr(pyg, name) and getattr(pyg, name) is not getattr(gssc, name)]
    assert clashes == []
