"""Padding is invisible: predictions, gradients and statistics of real graphs are those of the unpadded batch."""

import pytest
import torch
from graphs import edgeless, random_graph
from padded import pad_inputs
from torch_geometric.data import Batch
from torch_geometric.transforms import Compose

from gssc import GSSC, LaplacianSpectrum, RandomWalkSE, model_inputs
from gssc.testing import assert_close

TRANSFORM = Compose([LaplacianSpectrum(k=5), RandomWalkSE(4)])
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
LOCALS = ("gatedgcn", "gine", "gin", "gcn", "sage", "gat", "pna", "none")
GLOBALS = ("gssc", "gsc", "attention", "none")
ENCODINGS = {"node_features": 3, "edge_features": 2, "rwse": 4, "rwse_channels": 2, "diagonal_channels": 2}


def make_inputs(graphs):
    parts = []
    for data in graphs:
        data.x, data.edge_attr = torch.randn(data.num_nodes, 3), torch.randn(data.num_edges, 2)
        parts.append(TRANSFORM(data))
    inputs = model_inputs(Batch.from_data_list(parts))
    dtype = torch.get_default_dtype()
    return {
        name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def pad(inputs, nodes=5, edges=7, graphs=2):
    """So many more rows, with garbage where the model promises not to look."""
    rows = inputs["num_nodes"] + nodes, inputs["edge_index"].shape[1] + edges, inputs["num_graphs"] + graphs
    padded = pad_inputs(inputs, *rows)
    for name, mask in (("x", "node_mask"), ("rwse", "node_mask"), ("edge_attr", "edge_mask")):
        if padded[name] is not None:
            padded[name][~padded[mask]] = float("nan") if padded[name].is_floating_point() else 10**6
    return padded


def run(model, inputs, real):
    """Predictions for real rows, gradients of a loss over them, and statistics, after one step of training."""
    model = model.train()
    out = model(**inputs)[:real]
    model.zero_grad()
    (out * torch.linspace(-1.0, 2.0, out.numel()).view_as(out)).sum().backward()
    return {
        "output": out,
        **{f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None},
        **{name: buffer.clone() for name, buffer in model.named_buffers()},
    }


def check(settings, inputs, padded):
    real = inputs["num_nodes"] if settings.get("level") == "node" else inputs["num_graphs"]
    results = []
    for batch in (inputs, padded):
        torch.manual_seed(1)
        model = GSSC(2, 8, 2, **{**ENCODINGS, **settings})
        results.append(run(model, batch, real))
    expected, actual = results
    assert expected.keys() == actual.keys()
    for name, value in expected.items():
        if value.is_floating_point():
            assert_close(actual[name], value, name, TOLERANCE[value.dtype])
        else:
            assert torch.equal(actual[name], value), name
    with torch.no_grad():
        assert_close(model.eval()(**padded)[:real], model(**inputs), "evaluation", TOLERANCE[expected["output"].dtype])


PAIRS = [(local, glob) for local in LOCALS for glob in GLOBALS if (local, glob) != ("none", "none")]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("local", "glob"), PAIRS, ids=map("-".join, PAIRS))
def test_every_local_and_global_part(local, glob, dtype, request):
    if dtype == torch.float64:
        request.getfixturevalue("float64")
    inputs = make_inputs([random_graph(6, 0.4), edgeless(1), random_graph(9, 0.4, seed=1)])
    check({"local": local, "glob": glob, "degree_histogram": [2, 5, 9, 1]}, inputs, pad(inputs))


SETTINGS = {
    "selective": {"selective": True},
    "shared": {"selective": True, "kernel": "shared", "phi": "transformer"},
    "released": {"degree_scaling": True, "out_proj": True, "pool": "sum"},
    "voc-sp:released": {
        "degree_scaling": True,
        "degree": "undirected",
        "degree_init": "small",
        "head": "normalized-2",
        "in_proj": False,
        "self_term": False,
        "kernel": "shared",
        "level": "node",
    },
    "max": {"pool": "max", "jumping_knowledge": True},
    "layer norm": {"norm": "layer", "jumping_knowledge": True},
    "no norm": {"norm": "none"},
    "node": {"level": "node", "jumping_knowledge": True},
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_every_setting(settings, dtype, request):
    if dtype == torch.float64:
        request.getfixturevalue("float64")
    inputs = make_inputs([random_graph(6, 0.4), edgeless(1), random_graph(9, 0.4, seed=1)])
    check(settings, inputs, pad(inputs))


@pytest.mark.parametrize(
    ("graphs", "more"),
    [
        ([edgeless(3), edgeless(1)], {"nodes": 2, "edges": 2, "graphs": 1}),
        ([edgeless(1)], {"nodes": 3, "edges": 0, "graphs": 3}),
        ([random_graph(5)], {"nodes": 1, "edges": 0, "graphs": 1}),
        ([random_graph(5)], {"nodes": 0, "edges": 0, "graphs": 3}),
        ([random_graph(5)], {"nodes": 0, "edges": 0, "graphs": 0}),
        ([random_graph(5)], {"nodes": 70, "edges": 500, "graphs": 1}),
    ],
    ids=["no real edge", "one real node", "no padding edge", "graphs without nodes", "no padding", "mostly padding"],
)
def test_every_amount(float64, graphs, more):
    inputs = make_inputs(graphs)
    check({}, inputs, pad(inputs, **more))


def test_categories_out_of_range_in_padding(float64):
    inputs = make_inputs([random_graph(6, 0.4), random_graph(9, 0.4, seed=1)])
    inputs["x"] = torch.randint(0, 4, (15, 2))
    check({"local": "gine", "node_features": [4, 4]}, inputs, pad(inputs))
    inputs["x"] = inputs["x"][:, 0]
    check({"local": "gine", "node_features": [4]}, inputs, pad(inputs))


def test_autocast():
    inputs = make_inputs([random_graph(6, 0.4), random_graph(9, 0.4, seed=1)])
    model = GSSC(2, 8, 2, **ENCODINGS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, actual = (run(model, batch, 2) for batch in (inputs, pad(inputs)))
    assert_close(actual["output"].float(), expected["output"].float(), tolerance=0.05)
    assert all(torch.isfinite(value).all() for value in actual.values())


def test_one_graph_needs_no_batch():
    inputs = make_inputs([random_graph(6, 0.4)])
    padded = pad_inputs({**inputs, "batch": None}, 8, 40, 2)
    assert padded["batch"].tolist() == [0] * 6 + [1] * 2
    assert padded["edge_index"][:, -1].tolist() == [7, 7]


def with_entry(tensor, where, value):
    out = tensor.clone()
    out[where] = value
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: {"node_mask": p["node_mask"][1:]}, r"node_mask: expected shape \[20\], got \[19\]"),
        (lambda p: {"edge_mask": p["edge_mask"].long()}, r"edge_mask: expected a boolean tensor \(True = real\), got"),
        (lambda p: {"node_mask": None}, "node_mask: expected given where edge_mask is"),
        (lambda p: {"edge_mask": None, "edge_attr": None}, "edge_mask: expected real edges among real nodes and"),
        (lambda p: {"edge_index": with_entry(p["edge_index"], (0, -1), 0)}, "edge_mask: expected real edges among"),
        (lambda p: {"batch": with_entry(p["batch"], slice(12, None), 1)}, "node_mask: expected real nodes and padding"),
        (lambda p: {"batch": None}, "batch: expected the graph number of every node for 4 graphs, got None"),
    ],
)
def test_bad_masks(change, message):
    padded = pad(make_inputs([random_graph(6, 0.4), random_graph(9, 0.4, seed=1)]))
    with pytest.raises(ValueError, match=message):
        GSSC(2, 8, 1, node_features=3)(**{**padded, **change(padded)})


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 100, 2), "nodes: expected at least the 5 of the batch, got 4"),
        ((9, 1, 2), "edges: expected at least the"),
        ((9, 100, 1), "graphs: expected a graph for the padding nodes, got 1"),
        ((5, 100, 2), "nodes: expected a node for the padding edges, got 5"),
    ],
)
def test_bad_shapes(shape, message):
    with pytest.raises(ValueError, match=message):
        pad_inputs(make_inputs([random_graph(5, 0.6)]), *shape)
