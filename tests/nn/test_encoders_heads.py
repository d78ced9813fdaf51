import pytest
import torch

from gssc.nn import GraphHead, MLPHead, graph_context
from gssc.testing import assert_close


@pytest.mark.parametrize(
    ("form", "shapes"),
    [("wide", [(8, 8), (8, 8), (3, 8)]), ("linear", [(3, 8)]), ("halving", [(4, 8), (2, 4), (3, 2)])],
)
def test_forms(form, shapes):
    linears = [layer for layer in MLPHead(8, 3, form) if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linears] == shapes
    assert GraphHead(8, 3, form=form)(torch.randn(5, 8), graph_context(5, 2, torch.tensor([0, 0, 1, 1, 1]))).shape == (
        2,
        3,
    )
    with pytest.raises(ValueError, match="form: expected one of"):
        MLPHead(8, 3, "narrow")


@pytest.mark.parametrize("hidden", [1, 2])
def test_hidden_layers_of_length_one(hidden):
    head, x = MLPHead(12, 3, f"normalized-{hidden}", narrowed=4), torch.randn(5, 12)
    merge, narrow, *rest = [layer for layer in head if isinstance(layer, torch.nn.Linear)]
    h = narrow(torch.nn.functional.silu(merge(x)))
    assert len(rest) == hidden + 1
    for layer in rest[:-1]:
        h = layer(h).relu()
        h = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12)
    assert_close(head(x), rest[-1](h))
    whole = MLPHead(4, 3, f"normalized-{hidden}", narrowed=4)  # nothing to narrow
    assert sum(isinstance(layer, torch.nn.Linear) for layer in whole) == hidden + 1


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
    assert_close(head(x, graph_context(5, 3, batch)), head.mlp(pooled))
    assert_close(head(x, graph_context(5)), head.mlp(reduce(x)[None]))
    assert_close(head(x[:0], graph_context(0)), head.mlp(torch.zeros(1, 4)))


def test_bad_pool():
    with pytest.raises(ValueError, match="pool: expected one of 'sum', 'mean', 'max', got 'median'"):
        GraphHead(4, 1, "median")
