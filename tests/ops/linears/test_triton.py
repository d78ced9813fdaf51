"""Linears and their gradients in one launch each, against PyTorch; on a CPU through Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F

from gssc import ops
from gssc.ops import random
from gssc.ops.linears import triton
from gssc.testing import assert_close

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZES = [(1, 1, 1, 1), (33, 5, 7, 2), (70, 40, 96, 4), (130, 100, 33, 3)]


@pytest.fixture(params=["one share", "shares", "many"])
def cut(request, monkeypatch):
    """How the work is cut: all rows summed by one program or not, or large blocks as of many rows."""
    monkeypatch.setattr(triton, "SHARE", 2048 if request.param == "one share" else 64)
    if request.param == "many":
        monkeypatch.setattr(triton, "MANY", 0)


def make(rows, d, c, parts, dtype=torch.float32):
    def tensor(*shape):
        return torch.randn(shape, device=DEVICE).to(dtype)

    return tensor(rows, d), [tensor(c, d) for _ in range(parts)], [tensor(c) for _ in range(parts)]


def wide(tensors):
    return [tensor.double().requires_grad_() for tensor in tensors]


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_is_what_linears_compute(sizes, biased, cut):
    x, weights, biases = make(*sizes)
    biases = biases if biased else []
    with torch.enable_grad():
        leaves = [wide([x]), wide(weights), wide(biases)]
        pairs = zip(leaves[1], leaves[2] or [None] * len(weights), strict=True)
        exact = torch.cat([F.linear(leaves[0][0], *pair) for pair in pairs], 1)
        grad = torch.randn(exact.shape, device=DEVICE)
        (d_x, *rest) = torch.autograd.grad(exact, [leaf for group in leaves for leaf in group], grad.double())
    actual = triton.forward(x, weights, biases)
    assert_close(actual.double(), exact.detach(), tolerance=2e-5)
    added = torch.randn_like(x)
    parts = len(weights)
    for need_x, extra in ((True, None), (True, added), (False, None)):
        found = triton.backward(grad, x, weights, biased=biased, need_x=need_x, added=extra)
        if need_x:
            assert_close(found[0].double(), d_x if extra is None else d_x + extra.double(), "x", 2e-5)
        else:
            assert found[0] is None
        assert_close(found[1].double(), torch.cat(rest[:parts]), "weights", 1e-4)
        if biased:
            assert_close(found[2].double(), torch.cat(rest[parts:]), "biases", 1e-4)
        else:
            assert found[2] is None


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_an_activation_and_its_gradient(p, monkeypatch):
    """Of drop(ReLU(x Wᵀ + b)), and through what it was made of in the next product."""
    x, weights, biases = make(40, 12, 34, 1)
    _, second, _ = make(40, 34, 6, 1)
    seed = ops.new_seeds(1, DEVICE)[0] if p else None
    hidden = triton.forward(x, weights, biases, activation=True, seed=seed, p=p, site=3)
    with torch.enable_grad():
        before = (x.double() @ weights[0].double().t() + biases[0].double()).requires_grad_()
        exact = random.dropped(before.relu(), seed, 3, p)
        grad = torch.randn(40, 6, device=DEVICE)
        (expected,) = torch.autograd.grad(exact @ second[0].double().t(), before, grad.double())
    assert_close(hidden.double(), exact.detach(), tolerance=2e-5)
    for kernel in (True, False):  # and by products of PyTorch
        if not kernel:
            monkeypatch.setattr(triton, "_plan", lambda *_, **__: None)
        d_before, d_weight, _ = triton.backward(grad, hidden, second, hidden=True, p=p)
        assert_close(d_before.double(), expected, tolerance=5e-5)
        assert_close(d_weight.double(), grad.double().t() @ exact.detach(), tolerance=1e-4)


def test_half_precision_and_a_wide_residual():
    x, weights, biases = make(33, 32, 16, 2, torch.bfloat16)
    exact = torch.cat([F.linear(x.double(), w.double(), b.double()) for w, b in zip(weights, biases, strict=True)], 1)
    actual = triton.forward(x, weights, biases)
    assert actual.dtype == torch.bfloat16
    assert (actual.double() - exact).norm() < 1e-2 * exact.norm()
    grad, added = torch.randn(33, 32, device=DEVICE).bfloat16(), torch.randn(33, 32, device=DEVICE)
    d_x, d_weight, d_bias = triton.backward(grad, x, weights, added=added)
    assert (d_x.dtype, d_weight.dtype, d_bias.dtype) == (torch.float32, torch.bfloat16, torch.bfloat16)
    right = added.double() + grad.double() @ torch.cat(weights).double()
    assert (d_x.double() - right).norm() < 1e-2 * right.norm()


def test_many_rows_other_types_and_nothing_go_to_pytorch(monkeypatch):
    """Many exact rows do not."""
    x, weights, _ = make(triton.MANY + 1, 2, 2, 2)
    assert triton._plan(x, weights) is not None
    monkeypatch.setattr(triton, "wants_exact", lambda x: False)
    for rows, d, c, dtype in (
        (5, 3, 4, torch.float64),
        (0, 3, 4, torch.float32),
        (triton.MANY + 1, 2, 2, torch.float32),
    ):
        x, weights, biases = make(rows, d, c, 2, dtype)
        assert triton._plan(x, weights) is None
        expected = torch.cat([F.linear(x, w, b) for w, b in zip(weights, biases, strict=True)], 1)
        assert_close(triton.forward(x, weights, biases), expected, tolerance=1e-5)
        grad = torch.randn_like(expected)
        d_x, d_weight, d_bias = triton.backward(grad, x, weights)
        for actual, right in ((d_x, grad @ torch.cat(weights)), (d_weight, grad.t() @ x), (d_bias, grad.sum(0))):
            assert_close(actual, right, tolerance=1e-4)
        out = torch.empty_like(d_x)
        nothing = triton.backward(grad, x, weights, need_weights=False, out=out)[1:]
        assert nothing == (None, None)
        assert_close(out, d_x, tolerance=1e-5)


def test_results_are_written_where_they_are_wanted(cut):
    x, weights, biases = make(70, 40, 33, 1)
    out, d_x = torch.empty(70, 33, device=DEVICE), torch.empty_like(x)
    assert triton.forward(x, weights, biases, out=out) is out
    assert torch.equal(out, triton.forward(x, weights, biases))
    assert triton.backward(out, x, weights, need_weights=False, out=d_x) == (d_x, None, None)
    assert torch.equal(d_x, triton.backward(out, x, weights)[0])


def test_results_repeat_bit_by_bit():
    x, weights, biases = make(70, 40, 33, 3)
    grad = torch.randn(70, 99, device=DEVICE)
    first, second = ([triton.forward(x, weights, biases), *triton.backward(grad, x, weights)] for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [(1, 1), (0, 3), (5, 0), (63, 40), (300, 33), (3, 5000)], ids=str)
def test_column_sums(size, dtype, monkeypatch):
    """In one step and in several, of rows that stand in a wider tensor too."""
    n, c = size
    wide = torch.randn(n, c + 3, device=DEVICE).to(dtype)
    for rows in (wide[:, :c], wide[:, 1 : c + 1].contiguous(), torch.randn(c, n, device=DEVICE).to(dtype).t()):
        for summed in (256, 16):
            monkeypatch.setattr(triton, "SUMMED", summed)
            actual = triton.column_sums(rows, torch.float32 if dtype == torch.bfloat16 else None)
            assert actual.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
            assert_close(actual.double(), rows.double().sum(0), tolerance=1e-12 if dtype == torch.float64 else 1e-5)
