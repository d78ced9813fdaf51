import copy

import pytest
import torch
from graphs import edgeless, random_graph

from gssc.nn import GatedGCN
from gssc.ops import gated_gcn as gated_op
from gssc.ops import linears as products
from gssc.ops import norm as norm_op
from gssc.ops.context import GraphContext
from gssc.testing import assert_close

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_formula_edge_by_edge(float64):
    conv = GatedGCN(3, norm="none").eval()
    data = random_graph(6)
    x, e = torch.randn(6, 3), torch.randn(data.num_edges, 3)
    nodes, edges = conv(x, data.edge_index, e)
    new_edges = torch.zeros_like(e)
    for i in range(6):
        total, weight = torch.zeros(3), torch.full((3,), conv.eps)
        for number, (source, target) in enumerate(data.edge_index.T.tolist()):
            if target == i:
                logit = conv.lin_edge(e[number]) + conv.lin_target(x[i]) + conv.lin_source(x[source])
                new_edges[number] = e[number] + logit.relu()
                total += logit.sigmoid() * conv.lin_neighbor(x[source])
                weight += logit.sigmoid()
        assert_close(nodes[i], x[i] + (conv.lin_self(x[i]) + total / weight).relu())
    assert_close(edges, new_edges)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
def test_trains_without_edges_and_with_one_node(norm):
    conv = GatedGCN(4, dropout=0.1, norm=norm)
    for nodes in (1, 3):
        x, e = conv(torch.randn(nodes, 4), edgeless(nodes).edge_index, torch.zeros(0, 4))
        assert torch.isfinite(x).all()
        assert e.shape == (0, 4)
    assert all(torch.isfinite(buffer).all() for buffer in conv.buffers())


def test_edge_features_are_optional(float64):
    conv = GatedGCN(3).eval()
    data = random_graph(6)
    x, e = conv(torch.randn(6, 3), data.edge_index)
    assert x.shape == (6, 3)
    assert e.shape == (data.num_edges, 3)


def test_without_residual(float64):
    conv = GatedGCN(3).eval()
    bare = GatedGCN(3, residual=False).eval()
    bare.load_state_dict(conv.state_dict())
    data, x = random_graph(6), torch.randn(6, 3)
    e = torch.randn(data.num_edges, 3)
    for full, part, start in zip(conv(x, data.edge_index, e), bare(x, data.edge_index, e), (x, e), strict=True):
        assert_close(full, start + part)


def test_bad_input():
    with pytest.raises(ValueError, match=r"edge_attr: expected shape \[2, 3\], got \[1, 3\]"):
        GatedGCN(3)(torch.ones(2, 3), torch.tensor([[0, 1], [1, 0]]), torch.ones(1, 3))
    with pytest.raises(ValueError, match=r"dropout: expected a probability in \[0, 1\), got 1.0"):
        GatedGCN(3, dropout=1.0)


@pytest.fixture
def fuses(pretend_gpu):
    """Switches the kernels, which on a CPU run through Triton's interpreter, on and off."""
    pytest.importorskip("triton")
    return lambda on: pretend_gpu(on, gated_op, norm_op)


def context_of(data, device, **masks):
    """The context of one graph, with masks that need not be those of padding."""
    nodes, edge_index = data.num_nodes, data.edge_index.to(device)
    masks = {name: mask.to(device) for name, mask in masks.items()}
    return GraphContext(nodes, 1, torch.tensor([0, nodes], device=device), edge_index=edge_index, **masks)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("norm", ["batch", "none"])
def test_fused_is_the_same_module(fuses, norm, masked):
    """Outputs, gradients and running statistics, in training and after it, over two layers."""
    data = random_graph(7)
    edges = data.num_edges
    masks = {"node_mask": torch.arange(7) < 5, "edge_mask": torch.arange(edges) % 4 != 2} if masked else {}
    context = context_of(data, DEVICE, **masks)
    first = GatedGCN(6, norm=norm).to(DEVICE)
    second = copy.deepcopy(first)
    edge_index, x, e = (t.to(DEVICE) for t in (data.edge_index, torch.randn(7, 6), torch.randn(edges, 6)))
    results = []
    for conv, on in ((first, True), (second, False)):
        fuses(on)
        leaves = [x.clone().requires_grad_(), e.clone().requires_grad_()]
        node, edge = conv(
            conv(leaves[0], edge_index, leaves[1], context=context)[0], edge_index, leaves[1], context=context
        )
        loss = node.square().sum() + (edge * torch.linspace(-1, 1, edge.numel(), device=DEVICE).view_as(edge)).sum()
        d_x, d_e = torch.autograd.grad(loss, leaves, retain_graph=True)
        found = {"node": node, "edge": edge, "gradient of x": d_x, "gradient of e": d_e}
        loss.backward()
        found |= {name: p.grad for name, p in conv.named_parameters()} | dict(conv.named_buffers())
        conv.eval()
        with torch.no_grad():
            found |= dict(zip(("eval node", "eval edge"), conv(x, edge_index, e, context=context), strict=True))
        results.append(found)
    for name, expected in results[1].items():
        assert_close(results[0][name], expected, name, 2e-5)


def test_fused_without_edge_features_and_with_too_few_edges(fuses):
    conv = GatedGCN(6).to(DEVICE)
    for data in (random_graph(7), edgeless(3)):
        x = torch.randn(data.num_nodes, 6, device=DEVICE)
        results = []
        for on in (True, False):
            fuses(on)
            before = copy.deepcopy(conv)
            results.append([*before(x, data.edge_index.to(DEVICE)), *before.buffers()])
        for actual, expected in zip(*results, strict=True):
            assert_close(actual, expected, tolerance=2e-5)


def test_edges_that_nobody_needs_are_left_out(fuses):
    data = random_graph(7)
    edge_index, x, e = (t.to(DEVICE) for t in (data.edge_index, torch.randn(7, 6), torch.randn(data.num_edges, 6)))
    fuses(True)
    conv = GatedGCN(6).to(DEVICE)
    found = []
    for need_edges in (True, False):
        fresh = copy.deepcopy(conv)
        context = context_of(data, DEVICE)
        context.final = None if need_edges else fresh
        node, edge = fresh(x, edge_index, e, context=context)
        assert (edge is None) != need_edges
        node.square().sum().backward()
        found.append({"node": node, **{n: p.grad for n, p in fresh.named_parameters()}, **dict(fresh.named_buffers())})
    for name, expected in found[0].items():
        actual = found[1][name]
        assert (actual is None) == (expected is None), name
        assert actual is None or torch.equal(actual, expected), name


@pytest.mark.parametrize("nodes", [0, 1, 7])
@pytest.mark.parametrize("kind", ["masked", "bare"])
def test_one_product_is_the_four_linears(fuses, monkeypatch, nodes, kind):
    """One product, apart, and not fused in float64: outputs, statistics and the gradient of every parameter."""
    data = random_graph(7) if nodes == 7 else edgeless(nodes)
    masks, e = {}, None
    if kind == "masked":
        e = torch.randn(data.num_edges, 6)
        masks = {"node_mask": torch.arange(nodes) < nodes - 2, "edge_mask": torch.arange(data.num_edges) % 4 != 2}
    conv, x = GatedGCN(6), torch.randn(nodes, 6)
    results = []
    for on, limit, dtype in ((True, 1 << 21, torch.float32), (True, -1, torch.float32), (False, 0, torch.float64)):
        fuses(on)
        monkeypatch.setattr(products, "MERGED", limit)
        device = DEVICE if on else "cpu"
        fresh = copy.deepcopy(conv).to(device, dtype)
        leaf = x.to(device, dtype, copy=True).detach().requires_grad_()
        edge_index, attr = data.edge_index.to(device), None if e is None else e.to(device, dtype)
        context = context_of(data, device, **masks)
        context.final = None if kind == "masked" else fresh
        node, edge = fresh(leaf, edge_index, attr, context=context)
        loss = node.square().sum()
        if kind == "masked":
            loss = loss + edge.pow(3).sum()
        loss.backward()
        found = {"node": node, "gradient of x": leaf.grad, **dict(fresh.named_buffers())}
        found |= {name: p.grad for name, p in fresh.named_parameters() if p.grad is not None}
        results.append({name: value.detach().double().cpu() for name, value in found.items()})
    for actual in results[:2]:
        for name, expected in results[2].items():
            assert_close(actual.get(name, torch.zeros_like(expected)), expected, name, 2e-5)


@pytest.mark.parametrize("name", ["lin_target", "lin_source", "lin_neighbor", "lin_self", "lin_edge"])
def test_linears_that_were_replaced_or_are_watched_are_called(fuses, name):
    fuses(True)
    conv = GatedGCN(4).to(DEVICE)
    data = random_graph(5)
    x = torch.randn(5, 4, device=DEVICE)
    given = (data.edge_index.to(DEVICE), torch.randn(data.num_edges, 4, device=DEVICE))
    leaf = x.clone().requires_grad_()
    halved, calls, found = copy.deepcopy(conv), [], []
    for parameter in getattr(halved, name).parameters():
        parameter.data /= 2

    def twice(module, args, out):
        calls.append(name)
        return 2 * out

    getattr(halved, name).register_forward_hook(twice)
    for module in (halved, conv):
        node, edge = module(leaf, *given)
        found.append([node, edge, *torch.autograd.grad(node.square().sum() + edge.pow(3).sum(), leaf)])
    assert calls == [name]
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole_with_one_product(fuses):
    fuses(True)
    torch._dynamo.reset()
    conv = GatedGCN(4).to(DEVICE)
    compiled = torch.compile(copy.deepcopy(conv), fullgraph=True, dynamic=True, backend="aot_eager")
    for nodes in (5, 8):
        data = random_graph(nodes)
        given = (data.edge_index.to(DEVICE), torch.randn(data.num_edges, 4, device=DEVICE))
        x = torch.randn(nodes, 4, device=DEVICE)
        for module in (conv, compiled):
            module.zero_grad()
        results = []
        for module in (conv, compiled):
            node, edge = module(x, *given)
            (node.square().sum() + edge.square().sum()).backward()
            results.append([node, edge, *(p.grad for p in module.parameters())])
        for actual, expected in zip(*results, strict=True):
            assert_close(actual, expected, tolerance=1e-5)


def test_a_watched_norm_is_not_bypassed(fuses):
    fuses(True)
    conv = GatedGCN(4).to(DEVICE)
    seen = []
    conv.norm_edge.register_forward_pre_hook(lambda module, args: seen.append(args[0].shape))
    data = random_graph(5)
    conv(torch.randn(5, 4, device=DEVICE), data.edge_index.to(DEVICE))
    assert seen == [(data.num_edges, 4)]
