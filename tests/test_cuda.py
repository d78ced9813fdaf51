"""The same numbers on a GPU as on the CPU; run where there is one."""

import pytest
import torch
from batches import SIZES, conv_inputs, selective_inputs
from graphs import random_graph
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
