import pytest
import torch
from graphs import path, random_graph
from torch_geometric.data import Batch
from torch_geometric.nn import (
    CGConv,
    ChebConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GeneralConv,
    GINConv,
    GINEConv,
    PNAConv,
    SAGEConv,
    TransformerConv,
)

from gssc import GINE, DeepSetPhi, GatedGCN, GSSCLayer, GSSConv, LaplacianSpectrum, SoftmaxAttention
from gssc.nn import LocalGCN
from gssc.testing import assert_close

C = 8
MLP = torch.nn.Sequential(torch.nn.Linear(C, C))
PYG_CONVS = {
    "gcn": lambda: GCNConv(C, C),
    "gat": lambda: GATConv(C, C),
    "gat with edges": lambda: GATConv(C, C, edge_dim=C),
    "gatv2": lambda: GATv2Conv(C, C // 2, heads=2, residual=True),
    "crystal": lambda: CGConv(C),
    "crystal with edges": lambda: CGConv(C, dim=C),
    "general": lambda: GeneralConv(C, C),
    "gin": lambda: GINConv(MLP),
    "gine": lambda: GINEConv(MLP),
    "sage": lambda: SAGEConv(C, C),
    "transformer": lambda: TransformerConv(C, C),
    "cheb": lambda: ChebConv(C, C, K=2),
    "pna": lambda: PNAConv(C, C, ["mean", "max"], ["identity", "amplification"], torch.tensor([1, 4, 5])),
    "our gine": lambda: GINE(C),
    "gated": lambda: GatedGCN(C),
    "none": lambda: None,
}
GLOBALS = {"gssc": lambda: GSSConv(C), "attention": lambda: SoftmaxAttention(C), "none": lambda: None}


@pytest.fixture
def batch():
    transform = LaplacianSpectrum(k=4)
    batch = Batch.from_data_list([transform(path(5)), transform(random_graph(7))])
    batch.x, batch.edge_attr = torch.randn(12, C), torch.randn(batch.num_edges, C)
    return batch


def run(layer, batch):
    phi = DeepSetPhi(C)(batch.eigvals, batch.eigmask)
    return layer(batch.x, batch.edge_index, phi, batch.eigvecs, batch.batch, batch.edge_attr)


@pytest.mark.parametrize("glob", GLOBALS.values(), ids=GLOBALS.keys())
@pytest.mark.parametrize("local", PYG_CONVS.values(), ids=PYG_CONVS.keys())
def test_any_convolution_and_every_global_part(local, glob, batch):
    parts = local(), glob()
    if parts == (None, None):
        with pytest.raises(ValueError, match="local: expected a convolution, or None only where glob is given"):
            GSSCLayer(C, *parts)
        return
    layer = GSSCLayer(C, *parts, dropout_local=0.1, dropout_global=0.1, dropout_ffn=0.1)
    x, edge_attr = run(layer, batch)
    x.sum().backward()
    assert x.shape == (12, C)
    assert edge_attr.shape == (batch.num_edges, C)
    assert (edge_attr is batch.edge_attr) != isinstance(parts[0], GatedGCN)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_every_norm(norm, batch):
    x, _ = run(GSSCLayer(C, GatedGCN(C, norm=norm), GSSConv(C), norm=norm), batch)
    assert torch.isfinite(x).all()


def test_edge_features_and_weights_reach_the_convolutions_that_take_them(batch):
    layer = GSSCLayer(C, GINEConv(MLP)).eval()
    first, _ = run(layer, batch)
    batch.edge_attr = batch.edge_attr + 1
    assert (run(layer, batch)[0] - first).abs().max() > 1e-3
    layer = GSSCLayer(C, GCNConv(C, C)).eval()
    weighted = layer(batch.x, batch.edge_index, edge_weight=torch.rand(batch.num_edges))[0]
    assert (weighted - layer(batch.x, batch.edge_index)[0]).abs().max() > 1e-3


def test_formula(float64):
    layer = GSSCLayer(C, GCNConv(C, C), GSSConv(C), norm="layer").eval()
    data = LaplacianSpectrum(k=4)(path(5))
    x, phi = torch.randn(5, C), torch.randn(1, 4, C)
    h = layer.norm_local(x + layer.local(x, data.edge_index)) + layer.norm_global(x + layer.glob(x, phi, data.eigvecs))
    out, _ = layer(x, data.edge_index, phi, data.eigvecs)
    assert_close(out, layer.norm_ffn(h + layer.feed_forward(h)))


def test_residual_is_not_added_twice(float64):
    layer = GSSCLayer(C, GatedGCN(C)).eval()
    data, x = path(5), torch.randn(5, C)
    h = layer.norm_local(layer.local(x, data.edge_index)[0])
    assert_close(layer(x, data.edge_index)[0], layer.norm_ffn(h + layer.feed_forward(h)))
    own = GSSCLayer(C, CGConv(C)).eval()  # x + messages, always
    h = own.norm_local(own.local(x, data.edge_index))
    assert_close(own(x, data.edge_index)[0], own.norm_ffn(h + own.feed_forward(h)))


@pytest.mark.parametrize("name", ["our gine", "gated", "none"])
def test_a_layer_applied_twice_has_the_same_gradients_with_a_graph(name, batch):
    """Weights that are used twice depend on each other through what is between; no path may be counted twice."""
    layer = GSSCLayer(C, PYG_CONVS[name](), GSSConv(C, out_proj=True)).double()
    phi = torch.randn(2, 4, C, dtype=torch.float64)
    vectors, weights = batch.eigvecs.double(), list(layer.parameters())
    x, edges = batch.x.double(), batch.edge_attr.double()
    for _ in range(2):
        x, edges = layer(x, batch.edge_index, phi, vectors, batch.batch, edges)
    loss = x.square().sum()
    expected = torch.autograd.grad(loss, weights, retain_graph=True)
    for actual, other in zip(torch.autograd.grad(loss, weights, create_graph=True), expected, strict=True):
        assert_close(actual.detach(), other, tolerance=1e-10)


@pytest.mark.parametrize("local", [LocalGCN, GatedGCN])
def test_a_plain_layer_is_the_local_part_alone(float64, local):
    data = random_graph(7)
    x, layer = torch.randn(7, C), GSSCLayer(C, local(C), dropout_local=0.5, plain=True).eval()
    h = layer.local(x, data.edge_index)
    expected = layer.norm_local(h).relu() if local is LocalGCN else h[0]
    assert_close(layer(x, data.edge_index)[0], expected)
    assert not any("ffn" in name or "feed_forward" in name for name, _ in layer.named_parameters())
    with pytest.raises(ValueError, match="plain: expected False, unless there is a local part alone"):
        GSSCLayer(C, local(C), GSSConv(C), plain=True)
