"""The same numbers on a GPU as on the CPU; run where there is one."""

import copy

import pytest
import torch
from batches import SIZES, conv_inputs, selective_inputs
from graphs import random_graph
from streams import no_waiting
from torch_geometric.data import Batch
from torch_geometric.transforms import Compose

from gssc import GSSC, LaplacianSpectrum, RandomWalkSE, model_inputs, ops
from gssc.testing import assert_close

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def gradients(function, inputs, device):
    fresh = {
        name: value.detach().to(device).requires_grad_(value.is_floating_point()) for name, value in inputs.items()
    }
    output = function(**fresh)
    leaves = {name: value for name, value in fresh.items() if value.requires_grad}
    found = torch.autograd.grad(output.sum(), list(leaves.values()), allow_unused=True)
    return {"output": output, **dict(zip(leaves, found, strict=True))}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("sizes", [SIZES["ragged"], [60], [4, 4, 4]], ids=str)
def test_convolutions(sizes):
    def selective(**inputs):
        weights = {name: inputs.pop(name) for name in ("dv", "q", "k", "sq", "sk")}
        return ops.selective_gssc_conv(**inputs, weights=weights)

    for function, inputs in ((ops.gssc_conv, conv_inputs(sizes, 7, 5)), (selective, selective_inputs(sizes, 6, 3))):
        expected, actual = gradients(function, inputs, "cpu"), gradients(function, inputs, "cuda")
        for name in expected:
            assert_close(actual[name].cpu(), expected[name], name)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("settings", [{}, {"selective": True}, {"glob": "attention", "local": "gine"}], ids=str)
def test_model(settings):
    transform = Compose([LaplacianSpectrum(k=5), RandomWalkSE(4)])
    graphs = [transform(random_graph(n, 0.4, n)) for n in (5, 9, 30, 1)]
    batch = Batch.from_data_list(graphs)
    model = GSSC(2, 16, 2, rwse=4, rwse_channels=4, **settings).eval()
    expected = model(**model_inputs(batch))
    actual = model.cuda()(**model_inputs(batch.to("cuda")))
    assert_close(actual.cpu(), expected)


def make_batch(sizes, device="cuda"):
    graphs = []
    for n in sizes:
        data = LaplacianSpectrum(k=5)(random_graph(n, 0.4, n))
        data.x, data.edge_attr = torch.randn(n, 3), torch.randn(data.num_edges, 2)
        graphs.append(data)
    return model_inputs(Batch.from_data_list(graphs).to(device))


def parameter_gradients(model, inputs):
    out = model(**inputs)
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(out.square().sum(), list(parameters.values()), allow_unused=True)
    return {"output": out.detach(), **dict(zip(parameters, found, strict=True))}


SETTINGS = [
    {"local": "gatedgcn"},
    {"local": "gine", "pool": "sum"},
    {"local": "gine", "selective": True, "pool": "max"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_fused_model_in_training(settings):
    """In float32, where the kernels run, against the CPU in float64, and twice the same bits."""
    model = GSSC(2, 16, 2, node_features=3, edge_features=2, **settings)
    inputs = make_batch((5, 9, 30, 1), "cpu")
    wide = {name: v.double() if torch.is_tensor(v) and v.is_floating_point() else v for name, v in inputs.items()}
    expected = parameter_gradients(copy.deepcopy(model).double(), wide)
    on_gpu = {name: v.cuda() if torch.is_tensor(v) else v for name, v in inputs.items()}
    first, second = (parameter_gradients(copy.deepcopy(model).cuda(), on_gpu) for _ in range(2))
    scale = max(float(value.norm()) for value in expected.values() if value is not None)
    for name, value in expected.items():
        if value is None:
            # A parameter that nothing depends on: the op of a whole layer says zero.
            assert first[name] is None or not first[name].any(), name
            continue
        error = (first[name].cpu().double() - value).norm() / value.norm().clamp(min=1e-3 * scale)
        assert error < 1e-3, name
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_training_step_is_captured(settings):
    """Nothing waits for the device, and a replay computes what a launch does."""
    model = GSSC(2, 16, 2, node_features=3, edge_features=2, **settings).cuda()
    inputs = make_batch((5, 9, 30))
    parameter_gradients(model, inputs)
    torch.cuda.synchronize()
    with no_waiting():
        expected = parameter_gradients(model, inputs)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        parameter_gradients(model, inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        found = parameter_gradients(model, inputs)
    graph.replay()
    torch.cuda.synchronize()
    for name, value in expected.items():
        if value is not None:
            assert_close(found[name], value, name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_stays_finite_and_close(dtype):
    transform = LaplacianSpectrum(k=5)
    batch = Batch.from_data_list([transform(random_graph(n, 0.4, n)) for n in (5, 9, 30)]).to("cuda")
    model = GSSC(2, 16, 3).cuda()
    exact = model(**model_inputs(batch))
    with torch.autocast("cuda", dtype=dtype):
        out = model(**model_inputs(batch))
    assert torch.isfinite(out).all()
    assert (out.float() - exact).detach().abs().max() < 0.1 * exact.detach().abs().max().clamp(min=0.5)


def test_more_edge_features_than_32_bits_count():
    """The last rows of edges, 2³¹ numbers from the first, and their gradients, by the equation itself."""
    if torch.cuda.get_device_properties(0).total_memory < 60e9:
        pytest.skip("edge features of more than 2^31 numbers and their gradients need a GPU with 60 GB")
    nodes, edges, c, last = 50_000, 22_500_000, 96, 3000
    assert edges * c > 1 << 31
    half = {"device": "cuda", "dtype": torch.bfloat16}
    x, tell = torch.randn(nodes, c, **half), [torch.nn.Linear(c, c, **half).requires_grad_(False) for _ in range(4)]
    target, source = tell[0](x), tell[1](x)
    index = torch.randint(0, nodes, (2, edges), device="cuda")
    edge_attr = torch.randn(edges, c, **half).requires_grad_()
    linear = torch.nn.Linear(c, c, **half).requires_grad_(False)
    _, out = ops.gated_messages(x, tell, index, edge_attr, linear, backend="triton")
    assert out is not None
    (found,) = torch.autograd.grad(out, edge_attr, torch.ones_like(out))

    few = edge_attr.detach()[-last:].float().requires_grad_()
    logit = target[index[1, -last:]].float() + source[index[0, -last:]].float()
    logit = logit + linear(few.to(torch.bfloat16)).float()
    expected = few + torch.relu(logit)
    (gradient,) = torch.autograd.grad(expected.sum(), few)
    assert_close(out[-last:].float(), expected, "edges", 2e-2)
    # Where a logit is within rounding of zero, the two may differ in whether it passes, for all channels of the edge.
    sure = (logit.abs() > 3e-2).all(1)
    assert sure.sum() > 100
    assert_close(found[-last:].float()[sure], gradient[sure], "gradient", 2e-2)
