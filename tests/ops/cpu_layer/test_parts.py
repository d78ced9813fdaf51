"""Parts of a layer with backward passes of their own against PyTorch's derivatives, in float64, and twice."""

import pytest
import torch
from batches import SIZES
from edge_batches import EDGES, gine_inputs

from gssc.nn import GINE, GSSConv
from gssc.ops import edge_plan
from gssc.ops.cpu_layer import feed_forward, gine, projected_conv

pytestmark = pytest.mark.usefixtures("float64", "poisoned")


def assert_same(function, reference, inputs):
    """Output, gradients, and gradients of gradients; ``inputs`` are tensors that need them."""
    results = []
    for implementation in (function, reference):
        leaves = [value.detach().clone().requires_grad_() for value in inputs]
        out = implementation(*leaves)
        weight = torch.linspace(-1.0, 1.0, out.numel()).view_as(out)
        plain = torch.autograd.grad((out * weight).sum(), leaves, retain_graph=True)
        first = torch.autograd.grad(out.square().sum() + (out * weight).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum(grad.square().sum() for grad in first), leaves)
        results.append([out, *plain, *first, *second])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rows", [1, 7, 40])
@pytest.mark.parametrize("masked", [True, False])
def test_feed_forward(rows, masked):
    masks = [torch.randint(2, (rows, width)).double() * 1.5 if masked else None for width in (6, 3)]
    inputs = [torch.randn(rows, 3), torch.randn(6, 3), torch.randn(6), torch.randn(3, 6), torch.randn(3)]
    assert_same(
        lambda h, *weights: feed_forward.feed_forward(h, weights, *masks),
        lambda *given: feed_forward.composed(*given, *masks),
        inputs,
    )


@pytest.mark.parametrize("attributes", [True, False])
@pytest.mark.parametrize(("nodes", "pairs"), EDGES.values(), ids=EDGES.keys())
def test_gine(nodes, pairs, attributes):
    given = gine_inputs(nodes, pairs, 5)
    edge_index, plan = given["edge_index"], edge_plan(given["edge_index"], nodes)
    edges = [given["edge_attr"]] if attributes else []
    weights = [torch.randn(4, 5), torch.randn(4), torch.randn(5, 4), torch.randn(5)]

    def split(rest):
        return (rest[0], *rest[1:]) if attributes else (None, *rest)

    def own(x, *rest):
        edge_attr, eps, *weights = split(rest)
        return gine.gine(x, edge_attr, eps, weights, edge_index, plan)

    def other(x, *rest):
        edge_attr, eps, *weights = split(rest)
        return gine.composed(x, edge_attr, eps, *weights, edge_index)

    assert_same(own, other, [given["x"], *edges, torch.tensor([0.3]), *weights])


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("self_term", [True, False])
@pytest.mark.parametrize("sizes", [[5], [4, 4, 4], [7, 5, 9], [1, 2, 2]], ids=str)
def test_projected_conv(sizes, self_term, scaled):
    nodes, graphs, frequencies, channels = sum(sizes), len(sizes), 3, 4
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    vectors, degree = torch.randn(nodes, frequencies), torch.randint(4, (nodes,))
    x, gains, self_gains = torch.randn(nodes, channels), *torch.randn(2, graphs, frequencies, 1)
    present = {"scale": scaled, "log_scale": scaled, "w_o": True, "w_s": self_term, "w_out": True, "bias": True}
    shapes = {name: (channels,) if name in ("scale", "log_scale", "bias") else (channels, channels) for name in present}
    tensors = [torch.randn(shapes[name]) for name, there in present.items() if there]

    def unpacked(rest):
        values = iter(rest)
        own_gains = next(values) if self_term else None
        parameters = [next(values) if there else None for there in present.values()]
        return own_gains, projected_conv.Parameters(*parameters)

    def own(x, gains, *rest):
        own_gains, parameters = unpacked(rest)
        assert projected_conv.fits(x, gains, vectors, ptr, parameters)
        return projected_conv.projected_conv(x, gains, own_gains, vectors, ptr, degree, parameters)

    def other(x, gains, *rest):
        own_gains, parameters = unpacked(rest)
        logs = torch.log1p(degree.double()).unsqueeze(1)
        return projected_conv.composed(x, gains, own_gains, vectors, ptr, logs, *parameters)

    assert_same(own, other, [x, gains, *([self_gains] if self_term else []), *tensors])


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_the_module_is_the_same_with_and_without(sizes, monkeypatch):
    conv = GSSConv(6, 4, kernel="shared", degree_scaling=True, out_proj=True)
    torch.nn.init.normal_(conv.degree_log_scale)
    nodes, ptr = sum(sizes), torch.tensor([0, *sizes]).cumsum(0)
    x, vectors, phi = torch.randn(nodes, 6), torch.randn(nodes, 3), torch.randn(len(sizes), 3, 4)
    degree = torch.randint(5, (nodes,))

    def run():
        conv.zero_grad()
        out = conv(x, phi, vectors, degree=degree, ptr=ptr)
        out.square().sum().backward()
        return [out, *(parameter.grad for parameter in conv.parameters())]

    fast = run()
    monkeypatch.setattr(projected_conv, "fits", lambda *given: False)
    torch.testing.assert_close(fast, run(), rtol=1e-10, atol=1e-10)


def test_changed_eigenvectors_are_seen():
    conv = GSSConv(4, 4, kernel="shared", out_proj=True)
    x, phi, vectors, ptr = torch.randn(7, 4), torch.randn(2, 3, 4), torch.randn(7, 3), torch.tensor([0, 3, 7])
    first = conv(x, phi, vectors, ptr=ptr)
    vectors.mul_(2.0)
    changed = conv(x, phi, vectors, ptr=ptr)
    assert not torch.allclose(first, changed)
    torch.testing.assert_close(changed, conv(x, phi, vectors.clone(), ptr=ptr))
    ptr.copy_(torch.tensor([0, 4, 7]))
    torch.testing.assert_close(conv(x, phi, vectors, ptr=ptr), conv(x, phi, vectors.clone(), ptr=ptr.clone()))


def test_edges_of_a_wrong_shape_are_refused():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="edge_attr"):
        GINE(4)(torch.randn(2, 4), edge_index, torch.randn(2, 1), plan=edge_plan(edge_index, 2))
