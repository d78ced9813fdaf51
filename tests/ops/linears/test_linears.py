import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from gssc.ops.linears import linears
from gssc.ops.op import unmodified
from gssc.testing import assert_close


def test_modules_that_must_be_called():
    linear, embedding = nn.Linear(2, 2), nn.Embedding(2, 2)
    assert unmodified(linear, None, nn.Linear(3, 3))
    assert unmodified(linear, bias=True)
    assert not unmodified(linear, nn.Linear(3, 3, bias=False), bias=True)
    assert unmodified(embedding, kind=nn.Embedding)
    linear.register_forward_hook(lambda *_: None)
    embedding.register_forward_pre_hook(lambda *_: None)
    assert not unmodified(linear)
    assert not unmodified(embedding, kind=nn.Embedding)
    assert not unmodified(nn.Linear(3, 3), nn.Identity())
    assert not unmodified(parametrizations.weight_norm(nn.Linear(2, 2)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_one_product_is_what_the_modules_compute(rows, bias, float64):
    modules = [nn.Linear(3, 4, bias=bias) for _ in range(3)]
    x = torch.randn(rows, 3, requires_grad=True)
    leaves = [x, *(p for module in modules for p in module.parameters())]
    weights = torch.randn(3, rows, 4)
    merged, apart = linears(x, *modules), [module(x) for module in modules]
    results = [torch.autograd.grad(sum((w * o).sum() for w, o in zip(weights, outs, strict=True)), leaves)
               for outs in (merged, apart)]  # fmt: skip
    for actual, expected in zip([*merged, *results[0]], [*apart, *results[1]], strict=True):
        assert_close(actual, expected)


def test_what_is_not_used_and_second_derivatives(float64):
    modules = [nn.Linear(3, 4) for _ in range(2)]
    x = torch.randn(5, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(linears(x, *modules)[1].pow(3).sum(), x, create_graph=True)
    (expected,) = torch.autograd.grad(modules[1](x).pow(3).sum(), x, create_graph=True)
    assert_close(grad, expected)
    assert_close(*(torch.autograd.grad(g.square().sum(), x)[0] for g in (grad, expected)))


def test_a_watched_pruned_or_replaced_module_is_called(float64):
    x = torch.randn(5, 3)
    for change in ("hook", "prune", "replace", "wider"):
        modules = nn.ModuleList(nn.Linear(3, 4) for _ in range(2))
        calls = []
        if change == "hook":
            modules[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        elif change == "prune":
            prune.l1_unstructured(modules[0], "weight", amount=0.5)
            with torch.no_grad():  # which the mask meets when the module is called
                modules[0].weight_orig.fill_(1.0)
        elif change == "replace":
            modules[0] = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        else:
            modules[0] = nn.Linear(3, 5)
        expected = [module(x) for module in modules]
        calls.clear()
        for actual, value in zip(linears(x, *modules), expected, strict=True):
            assert_close(actual, value)
        assert len(calls) == (change == "hook")
