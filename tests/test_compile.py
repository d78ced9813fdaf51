"""torch.compile(fullgraph=True, dynamic=True) and torch.export of layer and model, against eager."""

import shutil

import pytest
import torch
from graphs import random_graph
from padded import pad_inputs
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv
from torch_geometric.transforms import Compose

from gssc import GSSC, GSSCLayer, GSSConv, LaplacianSpectrum, RandomWalkSE, model_inputs
from gssc.nn import EdgeHead
from gssc.testing import assert_close

TRANSFORM = Compose([LaplacianSpectrum(k=5), RandomWalkSE(4)])
# Inductor needs a C++ compiler; the capture of the graph, which is what can break, is tested without one too.
COMPILER = shutil.which("g++") or shutil.which("clang++")
inductor = pytest.param(
    "inductor", marks=[] if COMPILER else pytest.mark.skip(reason="inductor needs a C++ compiler, and there is none")
)
# Warnings of the compiler about itself are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")
MODELS = {
    "default": {},
    "selective": {"selective": True, "kernel": "shared"},
    "attention": {"glob": "attention", "local": "gine"},
    "encodings": {"rwse": 4, "rwse_channels": 4, "diagonal_channels": 4, "degree_scaling": True, "out_proj": True},
}


PAIRS = {"level": "edge", "local": "gcn", "glob": "none"}


def make_batch(sizes):
    graphs = []
    for seed, n in enumerate(sizes):
        data = random_graph(n, 0.4, seed)
        data.x, data.edge_attr = torch.randn(n, 3), torch.randn(data.num_edges, 2)
        data.edge_label_index = torch.randint(n, (2, n + 1))
        graphs.append(TRANSFORM(data))
    return Batch.from_data_list(graphs)


@pytest.fixture
def float64_model(float64):
    torch._dynamo.reset()
    return lambda layers=2, **settings: GSSC(2, 16, layers, node_features=3, edge_features=2, **settings)


def gradients(module, output):
    module.zero_grad()
    output.square().sum().backward()
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS.keys())
def test_model_compiles_whole_with_dynamic_shapes(float64_model, settings):
    check_compiled(float64_model(layers=1 if settings else 2, **settings), "aot_eager")


@pytest.mark.slow  # half a minute of a C++ compiler, most of it for the backward pass
@pytest.mark.parametrize("backend", [inductor])
def test_model_compiles_to_native_code(float64_model, backend):
    check_compiled(float64_model(layers=1), backend)


@torch.no_grad()
@pytest.mark.parametrize("backend", [inductor])
def test_inference_compiles_to_native_code(float64_model, backend):
    model = float64_model(layers=1).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for sizes in ([6, 9, 4], [5, 5, 8, 12]):
        inputs = model_inputs(make_batch(sizes))
        assert_close(compiled(**inputs), model(**inputs))


def check_compiled(model, backend):
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    for sizes in ([6, 9, 4], [5, 5, 8, 12], [7, 3]):
        inputs = model_inputs(make_batch(sizes))
        expected = model(**inputs)
        expected_gradients = gradients(model, expected)
        actual = compiled(**inputs)
        assert_close(actual, expected)
        for name, gradient in gradients(model, actual).items():
            assert_close(gradient, expected_gradients[name], name)


@pytest.mark.parametrize("local", ["gatedgcn", "pna"])
def test_padded_model_compiles_once_for_a_static_shape(float64_model, local):
    settings = {"local": local, "degree_histogram": [1, 4, 2], "rwse": 4, "rwse_channels": 4, "diagonal_channels": 4}
    layers = 2 if local == "gatedgcn" else 1
    model, eager = float64_model(layers, **settings), float64_model(layers, **settings)
    eager.load_state_dict(model.state_dict())
    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend="aot_eager")
    stance = "default"
    for sizes in ([6, 9, 4], [5, 5, 8, 2], [7, 3]):
        inputs = model_inputs(make_batch(sizes))
        padded = pad_inputs(inputs, nodes=24, edges=120, graphs=5)
        expected = eager(**inputs)
        with torch.compiler.set_stance(stance):
            actual = compiled(**padded)[: len(sizes)]
        assert_close(actual, expected)
        expected_gradients = gradients(eager, expected)
        for name, gradient in gradients(model, actual).items():
            assert_close(gradient, expected_gradients[name], name)
        for name, buffer in eager.named_buffers():
            assert_close(model.get_buffer(name).double(), buffer.double(), name)
        stance = "fail_on_recompile"


def test_layer_compiles_with_a_pyg_convolution(float64):
    torch._dynamo.reset()
    layer = GSSCLayer(8, GINEConv(torch.nn.Linear(8, 8)), GSSConv(8), norm="layer")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for sizes in ([6, 9, 4], [5, 8]):
        batch = make_batch(sizes)
        x, e = torch.randn(batch.num_nodes, 8), torch.randn(batch.num_edges, 8)
        phi = torch.randn(len(sizes), 5, 8)
        expected, _ = layer(x, batch.edge_index, phi, batch.eigvecs, batch.batch, e)
        expected_gradients = gradients(layer, expected)
        actual, _ = compiled(x, batch.edge_index, phi, batch.eigvecs, batch.batch, e)
        assert_close(actual, expected)
        for name, gradient in gradients(layer, actual).items():
            assert_close(gradient, expected_gradients[name], name)


def test_head_of_pairs_compiles_whole_with_dynamic_shapes(float64):
    torch._dynamo.reset()
    head = EdgeHead(8, 2)
    compiled = torch.compile(head, fullgraph=True, dynamic=True, backend="aot_eager")
    for nodes, count in ((6, 9), (5, 12), (7, 3)):
        x, pairs = torch.randn(nodes, 8), torch.randint(nodes, (2, count))
        expected = gradients(head, head(x, pairs))
        actual = compiled(x, pairs)
        assert_close(actual, head(x, pairs))
        for name, gradient in gradients(head, actual).items():
            assert_close(gradient, expected[name], name)


@pytest.mark.parametrize("settings", [*MODELS.values(), PAIRS], ids=[*MODELS, "pairs"])
def test_model_exports_with_dynamic_nodes_edges_and_graphs(float64_model, settings):
    model = float64_model(**settings).eval()

    def tensors(sizes):
        inputs = model_inputs(make_batch(sizes))
        return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}

    example = tensors([6, 9, 4])
    nodes, edges, graphs, pairs = (torch.export.Dim(name, min=2) for name in ("nodes", "edges", "graphs", "pairs"))
    shapes = {
        "x": {0: nodes},
        "edge_index": {1: edges},
        "eigvals": {0: graphs},
        "eigvecs": {0: nodes},
        "eigmask": {0: graphs},
        "batch": {0: nodes},
        "edge_attr": {0: edges},
        "rwse": {0: nodes},
        "edge_label_index": {1: pairs},
    }
    program = torch.export.export(model, (), example, dynamic_shapes={name: shapes[name] for name in example})
    for sizes in ([6, 9, 4], [5, 5, 8, 12], [7, 3]):
        inputs = tensors(sizes)
        assert_close(program.module()(**inputs), model(**inputs))
