"""The feed-forward network with its norm against PyTorch; on the CPU through Triton's interpreter, else on a GPU."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from gssc import ops
from gssc.nn import BatchNorm
from gssc.nn.layer import FeedForward
from gssc.ops import norm as norm_ops
from gssc.ops import random
from gssc.ops.linears import triton as products
from gssc.testing import assert_close

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def new_seed():
    return ops.new_seeds(1, DEVICE)[0]


def make(channels, p=0.0, training=True):
    network, norm = FeedForward(channels, p).to(DEVICE), BatchNorm(channels).to(DEVICE).train(training)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
            tensor.copy_(torch.rand_like(tensor) + 0.5)
    return network, norm


def outcome(backend, x, network, norm, mask, dtype=torch.float32, **settings):
    """Output, gradients, gradients of gradients and running statistics."""
    network, norm = copy.deepcopy(network).to(dtype), copy.deepcopy(norm).to(dtype)
    x = x.detach().to(dtype).requires_grad_()
    leaves = {"x": x, **dict(network.named_parameters()), **{f"norm.{n}": p for n, p in norm.named_parameters()}}
    out = ops.residual_feed_forward(x, network, norm, mask, backend=backend, **settings)
    plain = torch.autograd.grad(out.pow(3).sum(), [*leaves.values()], retain_graph=True)
    first = torch.autograd.grad(out.pow(3).sum(), [*leaves.values()], create_graph=True)
    twice = torch.autograd.grad(sum(g.square().sum() for g in first), [*leaves.values()], allow_unused=True)
    results = {"out": out, **{f"buffer {n}": b for n, b in norm.named_buffers()}}
    for kind, gradients in (("first", plain), ("with a graph", first), ("second", twice)):
        results |= {f"{kind}, {n}": g for n, g in zip(leaves, gradients, strict=True) if g is not None}
    return {name: value.detach().double() for name, value in results.items()}


def compare(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        # A gradient that vanishes, as that of the last bias before statistics of the batch, is a sum of others.
        alike = [other.abs().max() for key, other in expected.items() if key.split(",")[0] == name.split(",")[0]]
        scale = max(1.0, float(max(alike)))
        assert_close(actual[name] / scale, value / scale, name, 2e-3 if name.startswith("second") else 1e-4)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("statistics", ["of the batch", "running"])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("rows", "channels"), [(2, 1), (33, 5), (70, 34)])
def test_matches_naive_in_float64(rows, channels, p, statistics, masked):
    batch = statistics == "of the batch"
    network, norm = make(channels, p, training=batch)
    x, mask = torch.randn(rows, channels, device=DEVICE), None
    if masked:
        mask = torch.arange(rows, device=DEVICE) < max(2, rows - 3)
    more = {"training": True, "seed": new_seed(), "site": 4, "mask": mask}
    expected = outcome("naive", x, network, norm, dtype=torch.float64, **more)
    actual = outcome("triton", x, network, norm, **more)
    compare(actual, expected)


def test_float64_is_exact():
    network, norm = make(5)
    x = torch.randn(9, 5, device=DEVICE)
    found = [outcome(b, x, network, norm, None, torch.float64, training=True) for b in ("naive", "triton", "torch")]
    for other in found[1:]:
        for name, value in found[0].items():
            assert_close(other[name], value, name, 1e-8 * max(1.0, float(value.abs().max())))


def test_running_means_over_all_batches():
    network, norm = make(5)
    norm.momentum = None
    x = torch.randn(2, 9, 5, device=DEVICE)
    found = []
    for backend in ("naive", "triton"):
        own = copy.deepcopy(norm)
        for rows in x:
            ops.residual_feed_forward(rows, network, own, training=True, backend=backend)
        found.append(list(own.buffers()))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual.double(), expected.double(), tolerance=1e-5)


def test_no_rows_and_few():
    network, norm = make(3, 0.5)
    for rows in (0, 1):
        x = torch.randn(rows, 3, device=DEVICE)
        out = ops.residual_feed_forward(x, network, norm, training=True, backend="triton")
        assert out.shape == (rows, 3)
        assert torch.isfinite(out).all()


def test_autocast_leaves_the_residual_as_it_is():
    network, norm = make(8)
    x = torch.randn(20, 8, device=DEVICE, requires_grad=True)
    results = []
    for enabled in (True, False):
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=enabled):
            out = ops.residual_feed_forward(x, network, copy.deepcopy(norm), training=True, backend="triton")
        assert out.dtype == torch.float32
        gradients = torch.autograd.grad(out.pow(3).sum(), [x, *network[0].parameters(), network[3].weight])
        results.append([out.detach(), *gradients])
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() < 3e-2 * max(float(expected.norm()), 1.0)


def test_what_is_no_number_stays_so():
    x, weight = torch.tensor([[float("nan")], [-1.0], [2.0]], device=DEVICE), torch.ones(1, 1, device=DEVICE)
    with torch.no_grad():
        hidden = products.forward(x, (weight,), (torch.zeros(1, device=DEVICE),), activation=True)
    assert hidden[:, 0].nan_to_num(7.0).tolist() == [7.0, 0.0, 2.0]


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_many_rows_go_through_products_of_pytorch(p, monkeypatch):
    """The same numbers, with the same seed, as from the kernels for few."""
    network, norm = make(5, p)
    x, seed, found = torch.randn(9, 5, device=DEVICE), new_seed(), []
    for many in (0, products.MANY):
        monkeypatch.setattr(products, "MANY", many)
        found.append(outcome("triton", x, network, norm, None, training=True, seed=seed, site=4))
    compare(*reversed(found))


def test_bits_are_fair_and_differ_by_seed_site_row_and_channel():
    p, first, second = 0.3, new_seed(), new_seed()
    masks = [random.kept(first, 0, 400, 64, p), random.kept(first, 1, 400, 64, p), random.kept(second, 0, 400, 64, p)]
    masks += [masks[0].roll(1, 0), masks[0].roll(1, 1)]
    deviation = (p * (1 - p) / masks[0].numel()) ** 0.5
    for mask in masks[:3]:
        assert abs(float(mask.double().mean()) - (1 - p)) < 5 * deviation
        assert abs(mask.double().mean(0) - (1 - p)).max() < 5 * deviation * 64**0.5
        assert abs(mask.double().mean(1) - (1 - p)).max() < 5 * deviation * 400**0.5
    both = (1 - p) ** 2
    for mask in masks[1:]:
        overlap = float((masks[0] & mask).double().mean())
        assert abs(overlap - both) < 6 * (both * (1 - both) / mask.numel()) ** 0.5


def test_the_mean_stays():
    x, eye, zero = (t.to(DEVICE) for t in (torch.ones(400, 64), torch.eye(64), torch.zeros(64)))
    with torch.no_grad():
        dropped = products.forward(x, (eye,), (zero,), activation=True, seed=new_seed(), p=0.9)
    assert abs(float(dropped.mean()) - 1) < 5 * 3 / x.numel() ** 0.5


@pytest.mark.parametrize("change", ["hook", "hook of the whole", "prune", "replace", "no bias", "probabilities"])
def test_modules_that_must_be_called_are(pretend_gpu, change):
    pretend_gpu(True, norm_ops)
    network, norm = make(3, training=False)
    calls = []
    if change == "hook":
        network[0].register_forward_hook(lambda *_: calls.append(1))
    elif change == "hook of the whole":
        network.register_forward_hook(lambda *_: calls.append(1))
    elif change == "prune":
        prune.l1_unstructured(network[3], "weight", amount=0.5)
    elif change == "replace":
        network[3] = nn.Sequential(network[3], nn.Tanh())
    elif change == "no bias":
        network[3] = nn.Linear(6, 3, bias=False).to(DEVICE)
    else:
        network[2].p = 0.5
    x = torch.randn(4, 3, device=DEVICE)
    network.eval()
    expected = norm(x + network[3](network[0](x).relu()))
    calls.clear()
    assert_close(ops.residual_feed_forward(x, network, norm, training=False), expected, tolerance=1e-5)
    assert len(calls) == change.startswith("hook")
    with pytest.raises(ValueError, match="backend: expected 'torch' or 'auto' for modules that must be called"):
        ops.residual_feed_forward(x, network, norm, training=False, backend="triton")


def test_bad_input():
    x, (network, norm) = torch.ones(3, 2, device=DEVICE), make(2, 0.5)
    seed = torch.zeros(2, dtype=torch.int32, device=DEVICE)
    with pytest.raises(ValueError, match=r"seed: expected shape \[4\], got \[2\]"):
        ops.residual_feed_forward(x, network, norm, training=True, seed=seed, backend="triton")
    with pytest.raises(ValueError, match="backend: expected one of 'auto', 'naive', 'torch', 'triton', got 'eager'"):
        ops.residual_feed_forward(x, network, norm, training=True, backend="eager")
    with pytest.raises(ValueError, match="norm: expected a NormState"):
        ops.residual_feed_forward(x, network, nn.LayerNorm(2).to(DEVICE), training=True, backend="triton")
