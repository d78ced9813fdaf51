"""Each global part of another paper against its formula, graph by graph with all pairs, and its symmetries."""

import math
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from graphs import complete, edgeless, path, random_graph, star
from padded import pad_inputs
from torch_geometric.data import Batch

from gssc import GSSC, ExpanderGraph, graph_context, model_inputs
from gssc.nn import Exphormer, GraphMamba, Grit, Performer, PolynormerAttention, SimpleAttention
from gssc.nn.rivals import CARRYING, RIVALS
from gssc.nn.rivals import grit as grit_module
from gssc.nn.rivals.exphormer import EXPANDER, FROM_VIRTUAL, TO_VIRTUAL
from gssc.nn.rivals.mamba import GOLDEN
from gssc.nn.rivals.performer import LEAST
from gssc.ops.scan.naive import selective_scan
from gssc.recipes import find_recipe
from gssc.replay import Replay
from gssc.testing import (
    assert_batch_independent,
    assert_close,
    assert_no_gradient_across_graphs,
    assert_permutation_equivariant,
)
from tools.side_by_side import parameters

C, HEADS = 8, 2
ROWS = re.findall(
    r"^\| (.*?) \| `gssc train (.*?)` \| ([\d,]+) \| (.*?) \|$",
    (Path(__file__).parents[3] / "docs" / "rivals.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
pytestmark = pytest.mark.usefixtures("float64")


def graphs():
    """Ordinary ones, one node, no edges, and one much larger than the others."""
    parts = [random_graph(7), edgeless(1), edgeless(5), random_graph(40, 0.1), path(2)]
    for data in parts:
        data.x, data.edge_attr = torch.randn(data.num_nodes, C), torch.randn(data.num_edges, C)
    return [ExpanderGraph(4)(data) for data in parts]


def with_context(data):
    context = graph_context(data.num_nodes, data.num_graphs, data.batch, data.edge_index)
    context.expander, context.edge_attr = data.expander, data.edge_attr
    return context


def scores(q, k, v, kernel):
    """Σ_v kernel(q_u, k_v) v_v / Σ_v kernel(q_u, k_v) per head, of one graph; rows [n, C]."""
    q, k, v = (rows.unflatten(1, (HEADS, -1)) for rows in (q, k, v))
    rows = []
    for head in range(HEADS):
        weights = kernel(q[:, head], k[:, head])
        rows.append(weights @ v[:, head] / weights.sum(1, keepdim=True))
    return torch.cat(rows, dim=1)


def performer(part, data):
    width = C // HEADS

    def features(x, scaled_by):
        x = x / width**0.25
        exponents = torch.stack([torch.stack([w @ row - row @ row / 2 for w in part.omega]) for row in x])
        largest = exponents.amax(1, keepdim=True) if scaled_by == "row" else exponents.max()
        return (exponents - largest.detach()).exp() + LEAST

    q, k, v = part.lin_qkv(data.x).chunk(3, 1)
    return part.lin_out(scores(q, k, v, lambda q, k: features(q, "row") @ features(k, "all").T))


def polynormer(part, data):
    q, k, v, own = part.lin_in(data.x).chunk(4, 1)
    mixed = scores(q, k, v, lambda q, k: q.sigmoid() @ k.sigmoid().T)
    return part.lin_out(part.norm(mixed) * (own + part.beta.sigmoid())).relu()


def sgformer(part, data):
    q, k, v = part.lin_qkv(data.x).chunk(3, 1)
    weights = (q / q.norm()) @ (k / k.norm()).T / len(q)
    return (v + weights @ v) / (1 + weights.sum(1, keepdim=True))


def exphormer(part, data):
    """Two layers with the same weights, so that the virtual node is read."""
    x, n = data.x, data.num_nodes
    kinds, virtual = part.lin_edge(part.kinds.weight), part.virtual.weight[0]
    edges = [(int(u), int(v), e) for (u, v), e in zip(data.edge_index.T, part.lin_edge(data.edge_attr), strict=True)]
    for near in range(n):
        for far in data.expander[near].tolist():
            edges += [(near, far, kinds[EXPANDER]), (far, near, kinds[EXPANDER])]
    edges += [(n, u, kinds[FROM_VIRTUAL]) for u in range(n)] + [(u, n, kinds[TO_VIRTUAL]) for u in range(n)]
    for _ in range(2):
        q, k, v = part.lin_qkv(torch.cat([x, virtual[None]])).chunk(3, 1)
        total, mass = torch.zeros(n + 1, C), torch.full((n + 1, HEADS), 1e-6)
        for source, target, e in edges:
            exponent = (q[target] * k[source] * e).view(HEADS, -1).sum(1) / math.sqrt(C // HEADS)
            weight = exponent.clamp(-5, 5).exp()
            total[target] = total[target] + weight.repeat_interleave(C // HEADS) * v[source]
            mass[target] = mass[target] + weight
        out = total / mass.repeat_interleave(C // HEADS, dim=1)
        x, virtual = out[:n], out[n]
    return x


def grit(parts, data):
    n = data.num_nodes
    adjacency = torch.zeros(n, n)
    for u, v in data.edge_index.T:
        adjacency[u, v] += 1
    walk = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    e = parts[0].lin_walks(torch.stack([torch.linalg.matrix_power(walk, step) for step in range(parts[0].steps)], 2))
    source, target = data.edge_index
    e = e.index_put((source, target), e[source, target] + data.edge_attr)
    x, degrees = data.x, adjacency.sum(0)
    for part in parts:
        q, k, v = part.lin_qkv(x).chunk(3, 1)
        weight, bias = part.lin_gate(e).chunk(2, 2)
        outs, hats = [], []
        for u in range(n):
            products = [(q[u] + k[w]) * weight[u, w] for w in range(n)]
            roots = [product.sign() * product.abs().sqrt() for product in products]
            hats.append(torch.stack([(root + bias[u, w]).relu() for w, root in enumerate(roots)]))
            for head in range(HEADS):
                at = slice(head * C // HEADS, (head + 1) * C // HEADS)
                alpha = (hats[u][:, at] @ part.score[head]).clamp(-5, 5).softmax(0)
                outs.append(alpha @ (v[:, at] + hats[u][:, at] @ part.value[head]))
        out, hats = torch.cat(outs).view(n, C), torch.stack(hats)
        x = part.lin_out(out * part.scale[0] + degrees.log1p()[:, None] * out * part.scale[1])
        if part.lin_pairs is not None:
            e = part.norm_pairs((e + part.lin_pairs(hats)).flatten(0, 1)).view(n, n, C)
    return x


def mamba(part, data):
    n, outputs = data.num_nodes, torch.zeros(data.num_nodes, C)
    degrees = torch.bincount(data.edge_index[1], minlength=n)
    for run in range(part.orders):
        order = (degrees + torch.arange(1, n + 1) * ((run + 1) * GOLDEN) % 1).argsort()
        u, gate = part.lin_in(data.x[order]).chunk(2, 1)
        u = torch.nn.functional.silu(part.conv(torch.nn.functional.pad(u.T[None], (3, 0)))[0].T)
        step, b, c = part.lin_select(u).split([part.rank, part.state, part.state], 1)
        step = torch.log1p(part.lin_step(step).exp())
        y = selective_scan(u, step, -part.log_rates.exp(), b, c, torch.tensor([0, n])) + part.skip * u
        outputs[order] += part.lin_out(y * gate * gate.sigmoid()) / part.orders
    return outputs


FORMULAS = {
    "performer": (Performer, performer),
    "polynormer": (PolynormerAttention, polynormer),
    "sgformer": (SimpleAttention, sgformer),
    "exphormer": (Exphormer, exphormer),
    "grit": (Grit, grit),
    "mamba": (GraphMamba, mamba),
}


def make(name, first=True, last=True):
    if name == "grit":
        part = Grit(C, HEADS, first, last, steps=5)
        torch.nn.init.normal_(part.scale)
    else:
        part = RIVALS[name](C) if name in ("sgformer", "mamba") else RIVALS[name](C, HEADS)
    return part.eval()


@pytest.mark.parametrize("name", FORMULAS)
def test_it_is_what_its_paper_says(name):
    part, formula = make(name), FORMULAS[name][1]
    parts = [make("grit", last=False), make("grit", first=False)] if name == "grit" else [part]
    layers = parts if name == "grit" else [part, part] if name == "exphormer" else [part]
    batch = Batch.from_data_list(graphs())
    context, x = with_context(batch), batch.x
    for layer in layers:
        x = layer(x, context=context)
    expected = [formula(parts if name == "grit" else part, data) for data in batch.to_data_list()]
    assert_close(x, torch.cat(expected), tolerance=1e-9)
    weights = list(layers[0].parameters())
    losses = [out.square().sum() for out in (x, torch.cat(expected))]
    gradients = [torch.autograd.grad(loss, weights, allow_unused=True) for loss in losses]
    for (key, _), ours, theirs in zip(layers[0].named_parameters(), *gradients, strict=True):
        if theirs is not None:
            assert_close(ours, theirs, key, tolerance=1e-7)


def model_of(name, **settings):
    torch.manual_seed(1)
    return GSSC(2, C, 3, node_features=C, edge_features=C, glob=name, heads=HEADS, level="node", **settings).eval()


@pytest.mark.parametrize("name", RIVALS)
def test_a_model_of_it(name):
    parts = graphs()
    model = model_of(name)
    model.train()
    model(**model_inputs(Batch.from_data_list(parts)))  # statistics of norms that are not those of the beginning
    model.eval()

    def function(data):
        return model(**model_inputs(data))

    assert_batch_independent(function, parts)
    assert_no_gradient_across_graphs(function, parts)
    for data in parts:
        if name in ("performer", "grit", "sgformer", "polynormer"):
            assert_permutation_equivariant(function, data)
    unused = [key for key, value in model.named_parameters() if value.grad is None]
    model.train()(**model_inputs(Batch.from_data_list(parts))).square().sum().backward()
    unused = [key for key, value in model.named_parameters() if value.grad is None]
    assert not [key for key in unused if ".glob." in key], unused


def test_the_expander_moves_with_the_nodes_or_exphormer_is_another():
    data, model = graphs()[3], model_of("exphormer")
    order = torch.randperm(40)
    place = order.argsort()
    moved = data.clone()
    moved.x, moved.expander, moved.edge_index = data.x[order], place[data.expander[order]], place[data.edge_index]
    out = model(**model_inputs(data))
    assert_close(model(**model_inputs(moved)), out[order])
    other = ExpanderGraph(4, seed=1)(data.clone())
    assert not torch.allclose(model(**model_inputs(other)), out, atol=1e-3)


@pytest.mark.parametrize("make_graph", [complete, star, edgeless], ids=["complete", "star", "edgeless"])
def test_mamba_is_not_equivariant_where_degrees_are_equal(make_graph):
    data = make_graph(12)
    data.x, data.edge_attr = torch.randn(12, C), torch.randn(data.num_edges, C)
    model, order = model_of("mamba"), torch.randperm(12)
    moved = data.clone()
    moved.x, moved.edge_index = data.x[order], order.argsort()[data.edge_index]
    out = model(**model_inputs(data))
    assert not torch.allclose(model(**model_inputs(moved)), out[order], atol=1e-4)
    assert torch.equal(model(**model_inputs(data)), out)


def test_mamba_draws_orders_in_training_and_reads_by_degree():
    data = star(6)
    data.x = torch.randn(6, C)
    part, context = make("mamba").train(), graph_context(6, edge_index=data.edge_index)
    orders = [part._orders(context, 1)[0].tolist() for _ in range(20)]
    assert {order[-1] for order in orders} == {0}  # the centre last
    assert len({tuple(order) for order in orders}) > 5


def test_many_pairs_are_computed_again(monkeypatch):
    batch, gradients = Batch.from_data_list(graphs()), []
    for large in (2**24, 0):
        monkeypatch.setattr(grit_module, "LARGE", large)
        model = model_of("grit").train()
        model(**model_inputs(batch)).square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    for ours, theirs in zip(*gradients, strict=True):
        assert_close(ours, theirs, tolerance=1e-12)


@pytest.mark.parametrize("name", RIVALS)
def test_padding_is_invisible_also_at_one_size(name):
    """As replayed steps have it: more rows, and all graphs padded to the largest."""
    batch = Batch.from_data_list(graphs())
    inputs = model_inputs(batch)
    padded = pad_inputs(inputs, batch.num_nodes + 9, batch.num_edges + 6, batch.num_graphs + 1)
    results = []
    for given in (inputs, padded, padded | {"largest": 40}):
        model = model_of(name).train()
        if name == "mamba":  # which draws a number for every node
            model = model.eval()
        out = model(**given)[: batch.num_nodes]
        out.square().sum().backward()
        results.append([out, *(p.grad for p in model.parameters() if p.grad is not None)])
    for others in results[1:]:
        for ours, theirs in zip(others, results[0], strict=True):
            assert_close(ours, theirs, tolerance=1e-8)


@pytest.mark.parametrize("name", RIVALS)
def test_half_precision(name):
    batch = Batch.from_data_list(graphs())
    model = model_of(name).float()
    inputs = {key: value.float() if torch.is_tensor(value) and value.is_floating_point() else value
              for key, value in model_inputs(batch).items()}  # fmt: skip
    expected = model(**inputs)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(**inputs)
    out.float().square().sum().backward()
    assert float((out.float() - expected).detach().norm() / expected.detach().norm()) < 0.1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", RIVALS)
def test_on_a_gpu_it_says_the_same_and_is_captured(name):
    inputs = model_inputs(Batch.from_data_list(graphs()))
    expected = parameter_gradients(model_of(name), inputs)
    model = model_of(name).float().cuda()
    there = {key: value.cuda() if torch.is_tensor(value) else value for key, value in inputs.items()}
    there = {key: v.float() if torch.is_tensor(v) and v.is_floating_point() else v for key, v in there.items()}
    step = partial(parameter_gradients, model, there | {"largest": 40})
    replay = Replay(step, torch.device("cuda"), list(model.buffers()), careful=True)
    for found in (parameter_gradients(model, there), replay()):
        for ours, theirs in zip(found, expected, strict=True):
            error = float((ours.double().cpu() - theirs).norm())
            assert error < 1e-3 * max(1.0, float(theirs.norm()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_exphormer_repeats_bit_by_bit_on_a_gpu():
    batch, runs = Batch.from_data_list(graphs()).to("cuda"), []
    part = make("exphormer").float().cuda()
    batch.edge_attr = batch.edge_attr.float()
    for _ in range(2):
        x = batch.x.float().requires_grad_()
        context = with_context(batch)
        out = part(part(x, context=context), context=context)
        runs.append([out, *torch.autograd.grad(out.square().sum(), [x, *part.parameters()])])
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))


def parameter_gradients(model, inputs):
    """The output, and the gradients of all parameters; kernels say zero where others say that there is none."""
    out = model(**inputs)
    parameters = list(model.parameters())
    return [out.detach(), *torch.autograd.grad(out.square().sum(), parameters, materialize_grads=True)]


@pytest.mark.parametrize(("model", "command", "ours", "published"), ROWS, ids=[row[0] for row in ROWS])
def test_models_are_as_large_as_the_page_says_and_nearly_as_published(model, command, ours, published):
    recipe, *overrides = command.split()
    count = parameters(find_recipe(recipe).override(overrides))
    assert f"{count:,}" == ours
    if published != "not at hand":
        assert abs(count / int(published.replace(",", "")) - 1) < 0.035


def test_grit_takes_as_many_steps_as_nodes_know():
    for rwse, steps in ((0, 16), (20, 21)):
        model = GSSC(1, C, 2, rwse=rwse, rwse_channels=2, glob="grit", heads=HEADS)
        assert model.layers[0].glob.lin_walks.in_features == steps


def test_grit_reads_edges_without_message_passing():
    data = random_graph(6)
    data.x, data.edge_attr = torch.randn(6, C), torch.randn(data.num_edges, C)
    model = model_of("grit", local="none")
    out = model(**model_inputs(data))
    data.edge_attr = data.edge_attr + 1
    assert float((model(**model_inputs(data)) - out).detach().abs().min()) > 1e-6


def test_bad_input():
    data = random_graph(5)
    data.x, data.edge_attr = torch.randn(5, C), torch.randn(data.num_edges, C)
    with pytest.raises(ValueError, match=r"expander: expected expander graphs \(apply gssc.ExpanderGraph"):
        model_of("exphormer")(**model_inputs(data))
    for name in CARRYING:
        with pytest.raises(ValueError, match="recompute: expected 0 with glob="):
            model_of(name, recompute=1)
    with pytest.raises(ValueError, match="heads: expected a divisor of channels = 8"):
        Performer(8, heads=3)
    with pytest.raises(ValueError, match="first: expected True, for a layer before which there is no other"):
        Grit(C, HEADS, first=False)(data.x, context=graph_context(5, edge_index=data.edge_index))
