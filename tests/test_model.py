import math

import pytest
import torch
from graphs import edgeless, path, random_graph
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import Compose

from gssc import GINE, GSSC, GSSConv, LaplacianSpectrum, RandomWalkSE, model_inputs, prepare

TRANSFORM = Compose([LaplacianSpectrum(k=5), RandomWalkSE(4)])


def graph(n, seed=0):
    data = random_graph(n, 0.4, seed)
    data.x, data.edge_attr = torch.randn(n, 3), torch.randn(data.num_edges, 2)
    data.kind, data.bond = torch.randint(0, 5, (n, 2)), torch.randint(0, 3, (data.num_edges,))
    return TRANSFORM(data)


@pytest.fixture
def batch():
    return Batch.from_data_list([graph(6), graph(1), graph(9)])


def test_pairs_of_nodes_are_scored_by_the_states_of_their_ends(batch):
    torch.manual_seed(0)
    model = GSSC(2, 16, 2, node_features=3, edge_features=2, level="edge", jumping_knowledge=True).eval()
    pairs = torch.tensor([[0, 3, 15, 6], [5, 3, 2, 6]])
    out = model(**model_inputs(batch), edge_label_index=pairs)
    states = []
    model.head.register_forward_pre_hook(lambda head, arguments: states.append(arguments[0]))
    assert torch.equal(model(**model_inputs(batch), edge_label_index=pairs.flip(0)), out)
    u, v = states[0][pairs[0]], states[0][pairs[1]]
    torch.testing.assert_close(out, model.head.mlp(torch.cat([u * v, (u - v).abs()], dim=1)))
    ordered = GSSC(2, 16, 2, node_features=3, edge_features=2, level="edge", ordered_pairs=True).eval()
    both = [ordered(**model_inputs(batch), edge_label_index=ends) for ends in (pairs, pairs.flip(0))]
    changed = (both[0] - both[1]).abs().amax(1) > 1e-4
    assert changed.tolist() == [True, False, True, False]  # not that of a node with itself
    model.train()(**model_inputs(batch), edge_label_index=pairs).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_pairs_are_numbered_through_a_batch_and_checked(batch):
    graphs = [graph(n, n) for n in (5, 3, 8)]
    for data in graphs:
        data.edge_label_index = torch.tensor([[0, data.num_nodes - 1], [1, 0]])
    together = model_inputs(Batch.from_data_list(graphs))["edge_label_index"]
    assert together.tolist() == [[0, 4, 5, 7, 8, 15], [1, 0, 6, 5, 9, 8]]
    model = GSSC(1, 16, 1, node_features=3, level="edge").eval()
    for pairs, message in (
        (None, "edge_label_index: expected pairs of nodes, .2, M., got None"),
        (torch.tensor([[0], [16]]), "edge_label_index: expected node numbers in 0..15, got 0..16"),
        (torch.zeros(3, 2, dtype=torch.long), r"edge_label_index: expected shape \[2, \*\], got \[3, 2\]"),
    ):
        with pytest.raises(ValueError, match=message):
            model(**model_inputs(batch) | {"edge_attr": None}, edge_label_index=pairs)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"node_features": 3},
        {"node_features": 3, "edge_features": 2},
        {"node_features": 3, "edge_features": 2, "local": "gine", "glob": "attention"},
        {"node_features": 3, "glob": "gsc", "local": "gat", "edge_features": 2},
        {"node_features": 3, "glob": "none", "local": "gcn"},
        {"node_features": 3, "local": "pna", "degree_histogram": (1, 3, 2)},
        {"node_features": 3, "local": "pna", "degree_histogram": (1, 3, 2), "edge_features": 2},
        {"node_features": 3, "local": "none", "phi": "transformer", "phi_channels": 4},
        {"node_features": 3, "phi": "elementwise", "kernel": "shared", "local": "gin", "norm": "layer"},
        {"node_features": 3, "selective": True, "rwse": 4, "rwse_channels": 3, "diagonal_channels": 2},
        {"node_features": 3, "degree_scaling": True, "out_proj": True, "jumping_knowledge": True, "pool": "sum"},
        {"node_features": 3, "jumping_knowledge": True, "head": "wide"},
        {"node_features": 3, "head": "linear"},
        {"node_features": 3, "glob": "none", "lappe_channels": 4, "edge_embedding": True, "head": "normalized-1"},
        {"kernel": "shared", "kernel_channels": 5, "jumping_knowledge": True, "head": "normalized-2"},
        {"kernel": "shared", "in_proj": False, "self_term": False},
    ],
    ids=lambda s: "-".join(map(str, s.values())) or "default",
)
@pytest.mark.parametrize("level", ["graph", "node"])
def test_every_setting_trains(level, settings, batch):
    model = GSSC(4, 16, 2, level=level, dropout_local=0.1, dropout_global=0.1, dropout_ffn=0.1, **settings)
    inputs = model_inputs(batch)
    if "node_features" not in settings:
        inputs["x"] = None
    if "edge_features" not in settings:
        inputs["edge_attr"] = None
    out = model(**inputs)
    assert out.shape == ((3 if level == "graph" else 16), 4)
    out.square().sum().backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    # The last edge update of GatedGCN feeds nothing, and without edge features its edge weight is idle.
    assert all("edge" in name for name in unused), unused
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_categorical_inputs(batch):
    model = GSSC(1, 16, 2, node_features=[5, 5], edge_features=[3], local="gine")
    out = model(**{**model_inputs(batch), "x": batch.kind, "edge_attr": batch.bond})
    assert out.shape == (3, 1)
    assert isinstance(model.layers[0].local, GINE)


def test_node_task_on_one_graph_needs_no_batch():
    model = GSSC(2, 16, 2, node_features=3, level="node").eval()
    data = graph(30)
    out = model(data.x, data.edge_index, data.eigvals, data.eigvecs, data.eigmask)
    assert out.shape == (30, 2)


def test_phi_is_computed_once(batch):
    model = GSSC(2, 16, 5, node_features=3)
    calls = []
    model.phi.register_forward_hook(lambda *args: calls.append(1))
    model(**model_inputs(batch))
    assert len(calls) == 1
    assert sum(isinstance(module, GSSConv) for module in model.modules()) == 5


def test_no_spectrum_needed_without_a_spectral_part():
    data = path(4)
    assert GSSC(2, 16, 2, glob="none")(None, data.edge_index, num_nodes=4).shape == (1, 2)
    batch = torch.tensor([0, 0, 1, 1])
    out = GSSC(2, 16, 2, glob="attention", local="none")(
        torch.ones(4, 1)[:, :0], data.edge_index, batch=batch, num_graphs=2
    )
    assert out.shape == (2, 2)


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_tiny_graphs_train_and_evaluate(nodes):
    model = GSSC(2, 16, 2)
    inputs = model_inputs(LaplacianSpectrum(k=3)(edgeless(nodes)))
    model(**inputs).sum().backward()
    assert torch.isfinite(model.eval()(**inputs)).all()


def test_seeded_models_are_equal(batch):
    def make():
        torch.manual_seed(3)
        return GSSC(2, 16, 2, node_features=3).eval()(**model_inputs(batch))

    assert torch.equal(make(), make())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "settings", [{}, {"selective": True}, {"glob": "attention"}], ids=["gssc", "selective", "attention"]
)
def test_autocast_stays_finite_and_close(settings, dtype, batch):
    model = GSSC(2, 16, 3, node_features=3, edge_features=2, **settings)
    exact = model(**model_inputs(batch))
    with torch.autocast("cpu", dtype=dtype):
        out = model(**model_inputs(batch))
        loss = out.float().square().sum()
    loss.backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert (out.float() - exact).detach().abs().max() < 0.1 * exact.detach().abs().max().clamp(min=0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "x: expected a tensor of features, got None"),
        ({"x": torch.ones(16, 4)}, r"x: expected shape \[16, 3\], got \[16, 4\]"),
        ({"x": torch.full((16, 3), float("nan"))}, "x: expected finite numbers, got 48 non-finite of 48"),
        ({"edge_attr": None}, "edge_attr: expected a tensor of features, got None"),
        ({"edge_index": torch.tensor([[0], [99]])}, "edge_index: expected node numbers in 0..15, got 0..99"),
        ({"edge_index": torch.tensor([0, 1])}, r"edge_index: expected shape \[2, \*\]"),
        ({"eigvals": None, "num_graphs": 3}, "eigvals: expected eigvals, eigvecs and eigmask"),
        (
            {"eigvals": torch.ones(2, 5), "num_graphs": 3},
            "eigvals: expected one row for each of num_graphs = 3 graphs, got 2",
        ),
        ({"eigvecs": torch.ones(16, 4)}, r"eigvecs: expected shape \[16, 5\], got \[16, 4\]"),
        ({"batch": torch.arange(16).flip(0)}, "batch: expected graph numbers in ascending order"),
        ({"batch": None}, "batch: expected the graph number of every node for 3 graphs, got None"),
        ({"rwse": None}, r"rwse: expected random-walk encodings \(apply gssc.RandomWalkSE"),
        ({"rwse": torch.ones(16, 9)}, r"rwse: expected shape \[16, 4\], got \[16, 9\]"),
    ],
)
def test_bad_input(change, message, batch):
    model = GSSC(2, 16, 1, node_features=3, edge_features=2, rwse=4, rwse_channels=4)
    with pytest.raises(ValueError, match=message):
        model(**{**model_inputs(batch), **change})


def test_empty_batch():
    model = GSSC(2, 16, 1)
    empty = torch.empty(2, 0, dtype=torch.long)
    with pytest.raises(ValueError, match="batch: expected at least one graph, got an empty batch"):
        model(None, empty, torch.zeros(0, 3), torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool), empty[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"out_channels": 0}, "out_channels: expected a positive integer"),
        ({"layers": 0}, "layers: expected a positive integer"),
        ({"local": "gatdgcn"}, "local: expected one of .*did you mean 'gatedgcn'"),
        ({"glob": "gscc"}, "glob: expected one of .*did you mean"),
        ({"phi": "deepsets"}, "phi: expected one of .*did you mean 'deepset'"),
        ({"level": "pair"}, "level: expected one of 'node', 'graph', 'edge', got 'pair'"),
        ({"local": "none", "glob": "none"}, "local: expected a convolution"),
        (
            {"rwse": 5, "rwse_channels": 64},
            "rwse_channels . diagonal_channels . lappe_channels: expected less than channels",
        ),
        ({"local": "pna"}, "degree_histogram: expected that of the training set, for local='pna', got None"),
        ({"dropout_ffn": 1.5}, r"dropout_ffn: expected a probability in \[0, 1\), got 1.5"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        GSSC(**{"out_channels": 1, "channels": 16, "layers": 1, **settings})


def test_model_inputs_reads_what_is_there():
    inputs = model_inputs(Data(x=torch.ones(2, 1)))
    assert inputs["edge_index"].shape == (2, 0)
    assert inputs["eigvals"] is None
    assert inputs["num_graphs"] == 1
    with pytest.raises(ValueError, match=r"data: expected a torch_geometric\.data\.Data or Batch, got dict"):
        model_inputs({})


def test_edges_in_another_form_are_not_no_edges():
    data = Data(x=torch.zeros(3, 1), adj_t=torch.ones(3, 3).to_sparse())
    for read in (model_inputs, LaplacianSpectrum(3), lambda one: prepare([one], LaplacianSpectrum(3), progress=False)):
        with pytest.raises(ValueError, match=r"expected a graph with its edge_index, got one with adj_t alone"):
            read(data.clone())


@pytest.mark.parametrize("name", ["x", "edge_attr", "rwse", "eigvals", "eigvecs"])
def test_types_that_differ_from_those_of_the_weights_are_named(name, batch):
    model = GSSC(1, 16, 2, node_features=3, edge_features=2, rwse=4, rwse_channels=3).eval()
    inputs = model_inputs(batch)
    with pytest.raises(ValueError, match=rf"{name}: expected torch.float32, the type of .*, got torch.float64"):
        model(**inputs | {name: inputs[name].double()})
    everything = batch.clone().apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    assert model.double()(**model_inputs(everything)).dtype == torch.float64
    # What is not read may be of any type.
    GSSC(1, 16, 2, glob="none")(**inputs | {name: inputs[name].double()})


def test_smooth_ends_without_layers_are_a_gcn(float64):
    data = LaplacianSpectrum(k=4)(random_graph(30, 0.2))
    data.x = torch.randn(30, 8)
    settings = {"smooth": "ends", "norm": "none", "head": "linear", "level": "node", "node_features": 8}
    model = GSSC(3, 16, 1, layer_scale=0.0, **settings)
    first, second = GCNConv(8, 16), GCNConv(16, 3)
    for conv, linear in ((first, model.node_encoder.linear), (second, model.head[0])):
        conv.lin.weight.data = linear.weight.data
        linear.bias.data.zero_()
    expected = second(first(data.x, data.edge_index).relu(), data.edge_index)
    torch.testing.assert_close(model(**model_inputs(data)), expected)
    whole = GSSC(3, 16, 1, layer_scale=1.0, **settings)
    part = GSSC(3, 16, 1, layer_scale=0.25, **settings)
    part.load_state_dict(whole.state_dict())
    x, edges, phi = torch.randn(30, 16), data.edge_index, whole.phi(data.eigvals, data.eigmask)
    out, _ = whole.layers[0](x, edges, phi, data.eigvecs)
    torch.testing.assert_close(part.layers[0](x, edges, phi, data.eigvecs)[0], 0.75 * x + 0.25 * out)


def test_framed_like_a_gcn_it_begins_like_one():
    model = GSSC(3, 8, 1, node_features=5, level="node", head="linear", smooth="ends")
    for linear in (model.node_encoder.linear, model.head[0]):
        limit = math.sqrt(6 / (linear.in_features + linear.out_features))
        assert not linear.bias.any()
        assert 0.7 * limit < linear.weight.abs().max() <= limit
