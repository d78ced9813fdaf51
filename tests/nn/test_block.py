"""GSSCBlock: exactly GSSCLayer with φ, called like GPSConv, whichever way the spectra come."""

import pytest
import torch
from graphs import complete, cycle, edgeless, path, random_graph, two_triangles
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv, GPSConv

from gssc import GINE, DataLoader, DeepSetPhi, GatedGCN, GSSCBlock, GSSCLayer, GSSConv, LaplacianSpectrum
from gssc.padding import Shape, StaticBatch
from gssc.testing import (
    assert_basis_invariant,
    assert_batch_independent,
    assert_close,
    assert_no_gradient_across_graphs,
    assert_permutation_equivariant,
    assert_sign_invariant,
)

C = 6


def with_features(graph):
    generator = torch.Generator().manual_seed(graph.num_nodes)
    graph.x, graph.edge_attr = (torch.randn(n, C, generator=generator) for n in (graph.num_nodes, graph.num_edges))
    return graph


def batch_of(*graphs, k=4):
    return Batch.from_data_list([LaplacianSpectrum(k=k)(with_features(graph)) for graph in graphs])


def call(block, data, **how):
    return block(data.x, data.edge_index, data.get("batch"), edge_attr=data.edge_attr, **how)


def call_as_pyg(block, data, **how):
    return block(data.x, data.edge_index, data.batch, edge_attr=data.edge_attr, **how)


@pytest.mark.parametrize("conv", [GINE, GatedGCN, None, lambda c: GINEConv(torch.nn.Linear(c, c))])
@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_layer(float64, conv, training):
    data = batch_of(path(5), cycle(6), edgeless(2), random_graph(8))
    block = GSSCBlock(C, conv and conv(C), phi_channels=3, kernel="shared").train(training)
    layer = GSSCLayer(C, conv and conv(C), GSSConv(C, 3, "shared")).train(training)
    layer.load_state_dict(block.layer.state_dict())
    phi = DeepSetPhi(3)
    phi.load_state_dict(block.phi.state_dict())
    x = data.x.clone().requires_grad_()
    expected, _ = layer(x, data.edge_index, phi(data.eigvals, data.eigmask), data.eigvecs, data.batch, data.edge_attr)
    expected.square().sum().backward()
    data.x.requires_grad_()
    actual = call(block, data, spectrum=data)
    actual.square().sum().backward()
    assert torch.equal(actual, expected)
    assert torch.equal(data.x.grad, x.grad)
    ours = {**dict(block.layer.named_parameters()), **{f"phi.{n}": p for n, p in block.phi.named_parameters()}}
    theirs = {**dict(layer.named_parameters()), **{f"phi.{n}": p for n, p in phi.named_parameters()}}
    for name, parameter in theirs.items():
        assert (parameter.grad is None) == (ours[name].grad is None), name
        assert parameter.grad is None or torch.equal(parameter.grad, ours[name].grad), name


def test_spectra_come_by_keyword_or_with_the_batch_of_a_loader():
    graphs = batch_of(path(5), cycle(6)).to_data_list()
    block = GSSCBlock(C, GINE(C)).eval()
    (data,) = DataLoader(graphs, batch_size=2)
    expected = call(block, data, spectrum=data)
    assert torch.equal(call(block, data, spectrum=(data.eigvals, data.eigvecs, data.eigmask)), expected)
    assert torch.equal(call_as_pyg(block, data), expected)
    one = block(graphs[0].x, graphs[0].edge_index, edge_attr=graphs[0].edge_attr, spectrum=graphs[0])
    torch.testing.assert_close(one, expected[:5])


def test_it_is_called_as_gpsconv_is():
    (data,) = DataLoader(batch_of(path(5), cycle(6)).to_data_list(), batch_size=2)
    blocks = (kind(C, GINEConv(torch.nn.Linear(C, C)), dropout=0.1) for kind in (GPSConv, GSSCBlock))
    for block in blocks:
        assert call_as_pyg(block, data).shape == data.x.shape


def test_edges_that_a_gated_gcn_updates_are_returned_on_request():
    data = batch_of(path(5), cycle(6))
    x, edges = call(GSSCBlock(C, GatedGCN(C), return_edges=True), data, spectrum=data)
    assert x.shape == data.x.shape
    assert edges.shape == data.edge_attr.shape
    assert not torch.equal(edges, data.edge_attr)


def test_blocks_may_share_phi_or_what_it_makes():
    data, phi = batch_of(path(5), cycle(6)), DeepSetPhi(3)
    inside = torch.nn.ModuleList(GSSCBlock(C, GINE(C), phi=phi) for _ in range(2)).eval()
    outside = torch.nn.ModuleList(GSSCBlock(C, GINE(C), phi=None, phi_channels=3) for _ in range(2)).eval()
    assert inside[0].phi is inside[1].phi
    inside.load_state_dict(outside.state_dict(), strict=False)
    encoded = phi(data.eigvals, data.eigmask)
    for one, other in zip(inside, outside, strict=True):
        assert torch.equal(call(one, data, spectrum=data), call(other, data, spectrum=data, phi=encoded))
    with pytest.raises(ValueError, match="phi: expected Φ in every call, or a φ inside, got neither"):
        call(outside[0], data, spectrum=data)
    with pytest.raises(ValueError, match="got both"):
        call(inside[0], data, spectrum=data, phi=encoded)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize("make", [lambda: complete(6), two_triangles, lambda: cycle(8), lambda: random_graph(9)])
def test_symmetries(dtype, tolerance, make):
    torch.set_default_dtype(dtype)
    try:
        block = GSSCBlock(C, GINE(C)).eval()

        def function(data):
            return call(block, data, spectrum=data)

        transform, graph = LaplacianSpectrum(k=6), with_features(make())
        assert_permutation_equivariant(function, graph, transform, tolerance=tolerance)
        data = transform(graph)
        assert_sign_invariant(function, data, tolerance)
        assert_basis_invariant(function, data, tolerance)
        others = [data, transform(with_features(path(4)))]
        assert_batch_independent(function, others, tolerance)
        assert_no_gradient_across_graphs(function, others)
    finally:
        torch.set_default_dtype(torch.float32)


def test_padding_is_invisible(float64):
    graphs = batch_of(path(5), cycle(6)).to_data_list()
    (data,) = DataLoader(graphs, batch_size=2)
    static = StaticBatch(data, Shape(2, 19, 40), torch.device("cpu"))
    static.load(data)
    padded = static.batch
    block = GSSCBlock(C, GatedGCN(C))
    before = {name: value.clone() for name, value in block.state_dict().items()}
    outputs, after = [], []
    for batch, how in ((data, {}), (padded, {}), (padded, {"spectrum": padded})):
        block.load_state_dict(before)
        outputs.append(call_as_pyg(block, batch, **how)[: data.num_nodes])
        after.append({name: value.clone() for name, value in block.state_dict().items()})
    for output, statistics in zip(outputs[1:], after[1:], strict=True):
        assert_close(output, outputs[0])
        for name, value in statistics.items():
            torch.testing.assert_close(value, after[0][name])


def test_missing_spectra_are_one_line():
    data = batch_of(path(5))
    block = GSSCBlock(C, GINE(C))
    wanted = "spectrum: expected the Data or Batch that gssc.LaplacianSpectrum has seen"
    for source in (None, path(5), "sym", (data.eigvals, None, data.eigmask)):
        with pytest.raises(ValueError, match=wanted) as error:
            call(block, data, spectrum=source)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match=r"eigvecs: expected shape \[5, 4\], got \[7, 4\]"):
        call(block, data, spectrum=batch_of(path(7)))


@pytest.mark.parametrize("carried", [True, False])
def test_it_compiles_whole(carried):
    graphs = batch_of(path(5), cycle(6), random_graph(8), path(4)).to_data_list()
    block = GSSCBlock(C, GINE(C)).eval()

    def run(x, edge_index, batch, edge_attr, spectrum):
        return block(x, edge_index, batch, edge_attr, spectrum=spectrum)

    compiled = torch.compile(run, backend="eager", fullgraph=True, dynamic=True)
    for data in DataLoader(graphs, batch_size=2):
        spectrum = None if carried else (data.eigvals, data.eigvecs, data.eigmask)
        inputs = data.x, data.edge_index, data.batch, data.edge_attr, spectrum
        torch.testing.assert_close(compiled(*inputs), run(*inputs))
