"""The feed-forward network against PyTorch; on the CPU through Triton's interpreter, on a GPU where there is one."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from gssc import ops
from gssc.ops import norm
from gssc.ops.norm import naive
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def new_seed():
    return ops.new_seeds(1, DEVICE)[0]


def modules(channels, hidden=None):
    hidden = 2 * channels if hidden is None else hidden
    return nn.Linear(channels, hidden).to(DEVICE), nn.Linear(hidden, channels).to(DEVICE)


def unit(channels):
    """Modules that change nothing: what is between them comes out."""
    both = modules(channels, channels)
    with torch.no_grad():
        for module in both:
            module.weight.copy_(torch.eye(channels))
            module.bias.zero_()
    return both


@pytest.mark.parametrize(("rows", "channels"), [(1, 1), (33, 5), (70, 130)])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_matches_naive(rows, channels, p):
    seed, x = new_seed(), torch.randn(rows, channels, device=DEVICE)
    inner, outer = modules(channels)
    names = ("x", "w1", "b1", "w2", "b2")

    def by(backend):
        def function(**tensors):
            first, second = copy.deepcopy(inner), copy.deepcopy(outer)
            for module, weight, bias in ((first, "w1", "b1"), (second, "w2", "b2")):
                module._parameters.update(weight=tensors[weight], bias=tensors[bias])
            return ops.feed_forward(tensors["x"], first, second, p, training=True, seed=seed, site=4, backend=backend)

        return function

    tensors = dict(zip(names, (x, *inner.parameters(), *outer.parameters()), strict=True))
    tensors = {name: tensor.detach() for name, tensor in tensors.items()}
    assert_matches_reference(by("triton"), by("naive"), tensors, tolerance=1e-5)


def test_no_rows_and_half_precision():
    inner, outer = modules(3)
    drop = {"training": True, "seed": new_seed()}
    assert ops.feed_forward(torch.empty(0, 3, device=DEVICE), inner, outer, 0.5, **drop, backend="triton").shape == (0, 3)
    x = torch.randn(9, 3, device=DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        out = ops.feed_forward(x, inner, outer, 0.5, **drop, backend="triton")
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), ops.feed_forward(x, inner, outer, 0.5, **drop, backend="naive"), tolerance=5e-2)


def test_what_is_no_number_stays_so():
    x = torch.tensor([[float("nan")], [-1.0], [2.0]], device=DEVICE)
    for seed in (None, new_seed()):
        p = 0.0 if seed is None else 1e-6
        out = ops.feed_forward(x, *unit(1), p, training=True, seed=seed, backend="triton")
        assert out.isnan().flatten().tolist() == [True, False, False]


def test_bits_are_fair_and_differ_by_seed_site_row_and_channel():
    p, first, second = 0.3, new_seed(), new_seed()
    masks = [naive.kept(first, 0, 400, 64, p), naive.kept(first, 1, 400, 64, p), naive.kept(second, 0, 400, 64, p)]
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
    x = torch.ones(400, 64, device=DEVICE)
    out = ops.feed_forward(x, *unit(64), 0.9, training=True, seed=new_seed(), backend="triton")
    assert abs(float(out.detach().mean()) - 1) < 5 * 3 / x.numel() ** 0.5


def test_differentiable_twice():
    x, seed, found, (inner, outer) = torch.randn(5, 3, device=DEVICE), new_seed(), [], modules(3)
    for backend in ("triton", "naive"):
        leaf = x.clone().requires_grad_()
        leaves = [leaf, *inner.parameters(), *outer.parameters()]
        out = ops.feed_forward(leaf, inner, outer, 0.5, training=True, seed=seed, backend=backend)
        first = torch.autograd.grad(out.pow(3).sum(), leaves, create_graph=True)
        total = sum(gradient.square().sum() for gradient in first)
        found.append([*first, *torch.autograd.grad(total, leaves[:4])])
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


@pytest.mark.parametrize("change", ["hook", "prune", "replace", "no bias"])
def test_a_watched_pruned_or_replaced_module_is_called(pretend_gpu, change):
    pretend_gpu(True, norm)
    inner, outer = modules(3)
    calls = []
    if change == "hook":
        inner.register_forward_hook(lambda *_: calls.append(1))
    elif change == "prune":
        prune.l1_unstructured(outer, "weight", amount=0.5)
    elif change == "replace":
        outer = nn.Sequential(outer, nn.Tanh())
    else:
        outer = nn.Linear(6, 3, bias=False).to(DEVICE)
    x = torch.randn(4, 3, device=DEVICE)
    assert_close(ops.feed_forward(x, inner, outer), outer(inner(x).relu()))
    assert len(calls) == 2 * (change == "hook")
    with pytest.raises(ValueError, match="backend: expected 'torch' or 'auto' for modules that must be called"):
        ops.feed_forward(x, inner, outer, backend="triton")


def test_bad_input():
    x, both = torch.ones(3, 2, device=DEVICE), modules(2)
    with pytest.raises(ValueError, match=r"seed: expected shape \[4\], got \[2\]"):
        seed = torch.zeros(2, dtype=torch.int32, device=DEVICE)
        ops.feed_forward(x, *both, 0.5, training=True, seed=seed, backend="triton")
    with pytest.raises(ValueError, match="backend: expected one of 'auto', 'naive', 'torch', 'triton', got 'eager'"):
        ops.feed_forward(x, *both, backend="eager")
    with pytest.raises(ValueError, match=r"x: expected shape \[\*, 2\], got \[3, 4\]"):
        ops.feed_forward(torch.ones(3, 4, device=DEVICE), *both, backend="triton")
