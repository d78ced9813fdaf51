import pytest
import torch

from gssc import ops
from gssc.nn import GraphHead, MLPHead, heads
from gssc.testing import assert_close


@pytest.mark.parametrize(
    ("form", "shapes"),
    [("wide", [(8, 8), (8, 8), (3, 8)]), ("linear", [(3, 8)]), ("halving", [(4, 8), (2, 4), (3, 2)])],
)
def test_forms(form, shapes):
    linears = [layer for layer in MLPHead(8, 3, form) if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linears] == shapes
    assert GraphHead(8, 3, form=form)(torch.randn(5, 8), torch.tensor([0, 0, 1, 1, 1]), 2).shape == (2, 3)
    with pytest.raises(ValueError, match="form: expected one of"):
        MLPHead(8, 3, "narrow")


def test_width_halves():
    assert [layer.weight.shape for layer in MLPHead(32, 3) if isinstance(layer, torch.nn.Linear)] == [
        (16, 32),
        (8, 16),
        (3, 8),
    ]


@pytest.mark.parametrize("pool", ["sum", "mean", "max"])
def test_pools_each_graph_also_one_without_nodes(pool):
    head, x = GraphHead(4, 2, pool), torch.randn(5, 4)
    batch = torch.tensor([0, 0, 0, 2, 2])
    reduce = {"sum": lambda t: t.sum(0), "mean": lambda t: t.mean(0), "max": lambda t: t.max(0).values}[pool]
    pooled = torch.stack([reduce(x[:3]), torch.zeros(4), reduce(x[3:])])
    assert_close(head(x, batch, 3), head.mlp(pooled))
    assert_close(head(x, None, 1), head.mlp(reduce(x)[None]))
    assert_close(head(x[:0], None, 1), head.mlp(torch.zeros(1, 4)))


@pytest.mark.parametrize("pool", ["sum", "mean"])
def test_the_kernels_pool_the_same(pool, monkeypatch):
    pytest.importorskip("triton")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    head, x = GraphHead(4, 2, pool).to(device), torch.randn(5, 4, device=device)
    batch = torch.tensor([0, 0, 0, 2, 2], device=device)
    expected = head(x, batch, 3)
    monkeypatch.setattr(heads, "can_fuse", lambda x: True)
    monkeypatch.setattr(heads, "segment_sum", lambda *inputs: ops.segment_sum(*inputs, backend="fused"))
    for ptr in (None, torch.tensor([0, 3, 3, 5], device=device)):
        assert_close(head(x, batch, 3, ptr), expected, tolerance=1e-6)


def test_bad_pool():
    with pytest.raises(ValueError, match="pool: expected one of 'sum', 'mean', 'max', got 'median'"):
        GraphHead(4, 1, "median")
