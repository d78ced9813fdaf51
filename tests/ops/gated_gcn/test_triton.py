"""The kernels against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

import copy
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from edge_batches import EDGES, gated_inputs
from torch import Tensor, nn

from gssc import ops
from gssc.nn import BatchNorm
from gssc.ops import linears as merging
from gssc.ops.edges import launch
from gssc.ops.gated_gcn import triton as kernels_form
from gssc.ops.linears import mergeable
from gssc.ops.linears import triton as products
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A GPU compiles every shape anew, seconds each: there, of variants that differ in little, one is enough.
interpreted = pytest.mark.skipif(DEVICE == "cuda", reason="for the interpreter")
NORMS = ("none", "eval", "training")
LEAVES = ("target", "source", "neighbor", "edge_attr", "weight", "bias", "scale", "shift")
NORM_STATE = ("scale", "shift", "running_mean", "running_variance")


class Result(NamedTuple):
    """What the op returns, and the running statistics after it."""

    nodes: Tensor
    edges: Tensor
    buffers: tuple[Tensor, ...]


def with_tensors(module, weight, bias):
    """The module with these tensors, which may be leaves or not, as its weight and bias."""
    del module.weight, module.bias
    module.weight, module.bias = weight, bias
    return module


def told_by(joint, channels):
    """Four Linears that pick t, s, n and a from where they stand side by side."""
    eye = torch.eye(4 * channels, dtype=joint.dtype, device=joint.device)
    zero = eye.new_zeros(channels)
    return [with_tensors(nn.Linear(4 * channels, channels), weight, zero) for weight in eye.chunk(4)]


def run(backend, inputs, norm="training", **settings):
    """The op with modules made of the tensors in ``inputs``; without "joint", t, s and n are not one product."""
    inputs = dict(inputs)
    apart = "joint" not in inputs
    if apart:
        told = [inputs.pop(name) for name in LEAVES[:3]]
        inputs["joint"] = torch.cat([*told, torch.zeros_like(told[0])], 1)
    joint = inputs.pop("joint")
    channels = joint.shape[1] // 4
    scale, shift, mean, variance = (inputs.pop(name) for name in NORM_STATE)
    weight, bias = inputs.pop("weight", None), inputs.pop("bias", None)
    lin_edge = None if weight is None else with_tensors(nn.Linear(channels, channels), weight, bias)
    module = None
    if norm != "none":
        module = with_tensors(BatchNorm(channels).to(scale.device), scale, shift).train(norm == "training")
        module.running_mean, module.running_var = mean.detach().clone(), variance.detach().clone()
    more = {"lin_edge": lin_edge, "norm": module, "backend": backend, "training": True, **inputs, **settings}
    with patch.object(kernels_form, "mergeable", (lambda *_: False) if apart else mergeable):
        out = ops.gated_messages(joint, told_by(joint, channels), **more)
    return Result(*out, () if module is None else tuple(module.buffers()))


def joined(backend, norm, settings, fixed, **inputs):
    """Nodes and edges as one tensor, so that one weighted sum reaches all gradients."""
    out = run(backend, {**inputs, **fixed}, norm, **settings)
    return torch.cat([out.nodes, out.edges])


def make(name, channels, with_edges=True, masked=False):
    inputs = {key: value.to(DEVICE) for key, value in gated_inputs(*EDGES[name], channels, masked).items()}
    if not with_edges:
        for key in ("edge_attr", "weight", "bias"):
            del inputs[key]
    return inputs


def merged(inputs):
    """The same with t, s, n and an a side by side."""
    inputs = dict(inputs)
    told = [inputs.pop(name) for name in ("target", "source", "neighbor")]
    own = torch.randn(told[0].shape, generator=torch.Generator().manual_seed(1)).to(told[0])
    return {"joint": torch.cat([*told, own], 1), **inputs}


def check(reference, inputs, norm="training", tolerance=1e-5, **settings):
    """Output, running statistics and every gradient. Running statistics carry none."""
    inputs, fixed = dict(inputs), {}
    for name in NORM_STATE[2:]:
        fixed[name] = inputs.pop(name)
    if norm == "none":
        fixed |= {name: inputs.pop(name) for name in NORM_STATE[:2]}
    functions = [partial(joined, backend, norm, settings, fixed) for backend in ("triton", reference)]
    assert_matches_reference(*functions, inputs, tolerance=tolerance)
    actual, expected = (run(backend, {**inputs, **fixed}, norm, **settings) for backend in ("triton", reference))
    for moved, rightly in zip(actual.buffers, expected.buffers, strict=True):
        assert_close(moved, rightly, "running statistics", tolerance)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", EDGES)
def test_matches_naive(name, norm):
    check("naive", make(name, 5), norm)


@pytest.mark.parametrize("norm", ["none", "training"])
@pytest.mark.parametrize("name", ["random", "no edges"])
def test_without_edge_features(name, norm):
    check("naive", make(name, 5, with_edges=False), norm)


@pytest.mark.parametrize("norm", NORMS)
def test_masked_edges(norm):
    for name in ("random", "one edge"):
        check("naive", make(name, 5, masked=True), norm)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", EDGES)
def test_side_by_side_matches_naive(name, norm):
    check("naive", merged(make(name, 5)), norm)


@pytest.mark.parametrize("norm", ["none", "training"])
def test_side_by_side_with_masks_without_edge_features_and_of_several_blocks(norm, monkeypatch):
    check("naive", merged(make("random", 5, masked=True)), norm)
    check("naive", merged(make("random", 5, with_edges=False)), norm)
    if norm == "none":
        return
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    check("torch", merged(make("random", 140)), norm)


@pytest.mark.parametrize("backend", ["naive", "torch"])
def test_side_by_side_is_the_same_op(backend):
    """In float64: a is added, and the gradient is those of the four parts."""
    inputs = {name: v.double() if v.is_floating_point() else v for name, v in make("random", 5).items()}
    joint = merged(inputs)
    leaf = joint["joint"].requires_grad_()
    parts = [part.detach().clone().requires_grad_() for part in leaf.chunk(4, 1)]
    apart = {**inputs, **dict(zip(("target", "source", "neighbor"), parts, strict=False))}
    actual, expected = run(backend, joint), run(backend, apart)
    losses = [out.square().sum() for out in (actual.nodes, expected.nodes + parts[3])]
    losses = [loss + out.edges.pow(3).sum() for loss, out in zip(losses, (actual, expected), strict=True)]
    assert_close(actual.nodes, expected.nodes + parts[3])
    assert_close(torch.autograd.grad(losses[0], leaf)[0], torch.cat(torch.autograd.grad(losses[1], parts), 1))


def test_side_by_side_in_half_precision_keeps_the_sums_unrounded():
    joint = merged(make("random", 32))
    results = []
    for backend, dtype in (("triton", torch.bfloat16), ("torch", torch.float64)):
        fresh = {
            name: v.bfloat16().to(dtype) if v.is_floating_point() and name not in NORM_STATE else v
            for name, v in joint.items()
        }
        fresh |= {name: fresh[name].to(torch.promote_types(dtype, torch.float32)) for name in NORM_STATE}
        fresh["joint"].requires_grad_()
        out = run(backend, fresh)
        loss = out.nodes.double().square().sum() + out.edges.double().square().sum()
        results.append([out.nodes, out.edges, *torch.autograd.grad(loss, fresh["joint"])])
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == torch.bfloat16
        assert (actual.double() - expected).norm() < 3e-2 * expected.norm()


@pytest.mark.parametrize("channels", [pytest.param(1, marks=interpreted), 32, pytest.param(96, marks=interpreted), 140])
def test_widths_and_shares(channels, monkeypatch):
    """Programs with several nodes, several blocks of channels, blocks that end beyond the last channel."""
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    check("torch", make("random", channels))


@interpreted
def test_without_residual():
    check("torch", make("random", 5), residual=False)


def test_large_means_cost_no_digits():
    inputs = make("random", 5)
    inputs["bias"] = inputs["bias"] + 1000.0
    wide = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    (mean, variance, _), (exact_mean, exact_variance, _) = run("triton", inputs).buffers, run("torch", wide).buffers
    assert_close(variance.double(), exact_variance, tolerance=1e-3)
    assert_close(mean.double(), exact_mean, tolerance=1e-6)


def test_only_nodes_or_only_edges_are_used():
    """The last layer of a model drops its edges: their gradient is absent, not zero."""
    inputs = make("random", 5)
    leaves = LEAVES
    for part in ("nodes", "edges"):
        found = []
        for backend in ("triton", "torch"):
            fresh = {key: value.detach().clone().requires_grad_(key in leaves) for key, value in inputs.items()}
            loss = getattr(run(backend, fresh), part).square().sum()
            grads = torch.autograd.grad(loss, [fresh[name] for name in leaves], allow_unused=True)
            found.append([torch.zeros(1, device=DEVICE) if grad is None else grad for grad in grads])
        for name, actual, expected in zip(leaves, *found, strict=True):
            assert_close(actual, expected.expand_as(actual), f"gradient of {name} through {part}", 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=interpreted)])
def test_half_precision(dtype):
    inputs = make("random", 32)
    floating = [name for name, value in inputs.items() if value.is_floating_point() and name not in NORM_STATE[2:]]
    results = []
    for backend, wide in (("triton", False), ("torch", True)):
        fresh = {name: value.to(dtype) if name in floating[:6] else value for name, value in inputs.items()}
        if wide:
            fresh = {name: value.double() if value.is_floating_point() else value for name, value in fresh.items()}
        fresh |= {name: fresh[name].detach().clone().requires_grad_() for name in floating}
        out = run(backend, fresh)
        loss = out.nodes.double().square().sum() + out.edges.double().square().sum()
        results.append([out.nodes, out.edges, *torch.autograd.grad(loss, [fresh[name] for name in floating])])
    for name, actual, expected in zip(["nodes", "edges", *floating], *results, strict=True):
        error = (actual.double() - expected).norm() / expected.norm()
        assert error < (5e-2 if name == "bias" else 3e-2), name  # a sum of what a norm makes cancel
        assert actual.dtype == (torch.float32 if name in NORM_STATE else dtype), name


def test_dropout_drops_the_same_in_both_directions():
    inputs = make("random", 32)
    attr = inputs["edge_attr"]
    whole = run("triton", inputs).edges - attr
    fresh = {**inputs, "shift": inputs["shift"].clone().requires_grad_()}
    torch.manual_seed(3)
    out = run("triton", fresh, dropout=0.25)
    part = (out.edges - attr).detach()
    kept = part != 0
    assert_close(part[kept], whole[kept] / 0.75, tolerance=1e-5)
    share = float(kept.sum() / (whole != 0).sum())
    assert abs(share - 0.75) < 0.06
    (gradient,) = torch.autograd.grad(out.edges.sum(), fresh["shift"])
    assert_close(gradient, kept.float().sum(0) / 0.75, tolerance=1e-5)
    assert not torch.equal(run("triton", inputs, dropout=0.25).edges, out.edges)
    torch.manual_seed(3)
    assert torch.equal(run("triton", inputs, dropout=0.25).edges, out.edges)
    assert torch.equal(run("triton", inputs, dropout=0.25, training=False).edges, whole + attr)


def test_a_seed_and_a_site_say_what_is_dropped():
    """The same as the plain loop drops, also in gradients of gradients."""
    inputs, seed = make("random", 5), ops.new_seeds(1, torch.device(DEVICE))[0]
    check("naive", inputs, dropout=0.25, seed=seed, site=5)
    results = [run("triton", inputs, dropout=0.25, seed=seed, site=site).edges for site in (4, 5)]
    assert not torch.equal(*results)
    twice = []
    for backend in ("triton", "naive"):
        fresh = {name: v.detach().clone().requires_grad_(name in LEAVES) for name, v in inputs.items()}
        tensors = [fresh[name] for name in LEAVES]
        out = run(backend, fresh, dropout=0.25, seed=seed, site=5)
        first = torch.autograd.grad(out.nodes.square().sum() + out.edges.square().sum(), tensors, create_graph=True)
        twice.append(torch.autograd.grad(sum(g.square().sum() for g in first), tensors))
    for name, actual, expected in zip(LEAVES, *twice, strict=True):
        assert_close(actual, expected, name, tolerance=1e-3)


def test_what_nodes_tell_edges_is_computed_anew_where_memory_is_scarce(monkeypatch):
    """Gradients, and gradients of gradients, in x and in weights are those of the op that keeps it."""
    inputs = make("random", 5)
    x = torch.randn(inputs["target"].shape[0], 4, device=DEVICE, requires_grad=True)
    tell = [nn.Linear(4, 5).to(DEVICE) for _ in range(4)]
    lin_edge, norm = nn.Linear(5, 5).to(DEVICE), BatchNorm(5).to(DEVICE)
    leaves = [x, *(p for module in (*tell, lin_edge, norm) for p in module.parameters())]
    results = []
    for limit in (0, 1 << 21):
        monkeypatch.setattr(merging, "MERGED", limit)
        edges = (inputs["edge_index"], inputs["edge_attr"], lin_edge, norm)
        nodes, new_edges = ops.gated_messages(x, tell, *edges, training=True, backend="triton")
        kept = [t for t in nodes.grad_fn.saved_tensors if t is not None and t.shape == (nodes.shape[0], 20)]
        assert (not kept) == (limit == 0)
        loss = nodes.square().sum() + new_edges.square().sum()
        first_order = torch.autograd.grad(loss, leaves, retain_graph=True)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        twice = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, allow_unused=True)
        results.append([*first_order, *(torch.zeros(1) if g is None else g for g in twice)])
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_modules_are_what_they_are_in_pytorch(norm):
    """In one step with the product before them: outputs and gradients of x and of all weights, once and twice."""
    inputs, found = make("random", 5), []
    modules = [*(nn.Linear(4, 5) for _ in range(4)), nn.Linear(5, 5), BatchNorm(5).train(norm == "training")]
    start = torch.randn(inputs["target"].shape[0], 4)
    for backend, dtype in (("triton", torch.float32), ("torch", torch.float64)):
        *tell, lin_edge, module = (copy.deepcopy(part).to(DEVICE, dtype) for part in modules)
        x = start.to(DEVICE, dtype).requires_grad_()
        edge_attr = inputs["edge_attr"].to(dtype).requires_grad_()
        leaves = [x, edge_attr, *(p for part in (*tell, lin_edge) for p in part.parameters())]
        edges = (inputs["edge_index"], edge_attr, lin_edge, None if norm == "none" else module)
        out = torch.cat(ops.gated_messages(x, tell, *edges, backend=backend))
        plain = torch.autograd.grad(out.square().sum(), leaves, retain_graph=True)
        first = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
        twice = torch.autograd.grad(sum(g.square().sum() for g in first), leaves)
        found.append([out, *plain, *first, *twice])
    for number, (actual, expected) in enumerate(zip(*found, strict=True)):
        assert_close(actual.double(), expected, str(number), tolerance=2e-3 if norm == "training" else 2e-4)


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_with_the_update_of_nodes(masked, rest):
    """In one step of autograd: outputs, statistics and gradients, once and twice, are those of the plain loop."""
    inputs, found = make("random", 5, masked=masked), []
    count = inputs["target"].shape[0]
    modules = [*(nn.Linear(5, 5) for _ in range(5)), *(BatchNorm(5).train(not rest) for _ in range(2))]
    start, seed = torch.randn(count, 5), ops.new_seeds(1, torch.device(DEVICE))[0]
    more = {"training": not rest, "dropout": 0.2, "seed": seed, "site": 5, "node_site": 4}
    if masked:  # edges of padding join padding
        node_mask = torch.ones(count, dtype=torch.bool, device=DEVICE).index_fill(0, inputs["edge_index"][1, :1], False)
        more |= {"mask": inputs["mask"], "node_mask": node_mask}
    for backend, dtype in (("triton", torch.float32), ("naive", torch.float64)):
        *tell, lin_edge, edge, node = (copy.deepcopy(part).to(DEVICE, dtype) for part in modules)
        x, e = start.to(DEVICE, dtype).requires_grad_(), inputs["edge_attr"].to(dtype).requires_grad_()
        parameters = (p for part in (*tell, lin_edge, edge, node) for p in part.parameters())
        leaves = [x, e, *parameters]
        if backend == "naive":  # which leaves the update to the other op: there it is made by hand
            h, edges = ops.gated_messages(x, tell, inputs["edge_index"], e, lin_edge, edge, backend="naive", **more)
            branch = ops.Branch(h, node, 0.2 if not rest else 0.0)
            settings = {"training": not rest, "seed": None if rest else seed, "site": 4, "activation": True}
            out = ops.residual_norm(x, [branch], more.get("node_mask"), backend="naive", **settings)
        else:
            out, edges = ops.gated_messages(
                x, tell, inputs["edge_index"], e, lin_edge, edge, norm_node=node, backend="triton", **more
            )
            assert type(out.grad_fn).__name__ == "_OpOfLinearsBackward"
        loss = out.square().sum() + edges.square().sum()
        plain = torch.autograd.grad(loss, leaves, retain_graph=True)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        twice = torch.autograd.grad(sum(g.square().sum() for g in first), leaves, allow_unused=True)
        twice = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(twice, leaves, strict=True)]
        buffers = [b.detach() for part in (edge, node) for b in part.buffers()]
        found.append([out, edges, *buffers, *plain, *first, *twice])
    for number, (actual, expected) in enumerate(zip(*found, strict=True)):
        assert_close(actual.double(), expected.double(), str(number), tolerance=3e-3)


def test_half_precision_by_autocast():
    inputs, found = make("random", 32), []
    tell, lin_edge = [nn.Linear(32, 32).to(DEVICE) for _ in range(4)], nn.Linear(32, 32).to(DEVICE)
    x = inputs["target"].detach().requires_grad_()
    for enabled in (True, False):
        with torch.autocast(DEVICE, torch.bfloat16, enabled=enabled):
            nodes, edges = ops.gated_messages(
                x, tell, inputs["edge_index"], inputs["edge_attr"], lin_edge, backend="triton"
            )
        assert nodes.dtype == edges.dtype == (torch.bfloat16 if enabled else torch.float32)
        loss = nodes.float().square().sum() + edges.float().square().sum()
        found.append([nodes.float(), edges.float(), *torch.autograd.grad(loss, [x, tell[0].weight, tell[3].bias])])
    for actual, expected in zip(*found, strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() < 3e-2 * expected.norm()


def test_results_repeat_bit_by_bit():
    inputs = make("random", 5)
    for variant in (inputs, merged(inputs)):
        first, second = run("triton", variant), run("triton", variant)
        assert torch.equal(first.nodes, second.nodes)
        assert torch.equal(first.edges, second.edges)
        assert all(torch.equal(*pair) for pair in zip(first.buffers, second.buffers, strict=True))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("side_by_side", [False, True])
def test_differentiable_twice(side_by_side, norm):
    inputs = merged(make("random", 3, masked=True)) if side_by_side else make("random", 3)
    leaves = tuple(name for name in ("joint", *LEAVES[: 6 if norm == "none" else 8]) if name in inputs)
    results = []
    for backend in ("triton", "torch"):
        fresh = {key: value.detach().clone().requires_grad_(key in leaves) for key, value in inputs.items()}
        out = run(backend, fresh, norm)
        tensors = [fresh[name] for name in leaves]
        first = torch.autograd.grad(out.nodes.square().sum() + out.edges.square().sum(), tensors, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), tensors))
    for name, actual, expected in zip(leaves, *results, strict=True):
        assert_close(actual, expected, name, tolerance=1e-3)


def test_gradients_with_a_graph_where_inputs_depend_on_each_other():
    inputs = make("random", 3)
    inputs["target"] = inputs["target"].detach().clone().requires_grad_()
    inputs |= {"source": inputs["target"].sin(), "neighbor": inputs["target"].cos()}
    out = run("triton", inputs)
    loss = out.nodes.square().sum() + out.edges.square().sum()
    (expected,) = torch.autograd.grad(loss, inputs["target"], retain_graph=True)
    (actual,) = torch.autograd.grad(loss, inputs["target"], create_graph=True)
    assert_close(actual.detach(), expected, tolerance=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole():
    torch._dynamo.reset()
    channels = 4
    lin_edge, norm = nn.Linear(channels, channels).to(DEVICE), BatchNorm(channels).to(DEVICE)
    tell = [nn.Linear(channels, channels).to(DEVICE) for _ in range(4)]

    def function(x, edge_index, edge_attr):
        return ops.gated_messages(x, tell, edge_index, edge_attr, lin_edge, norm, backend="triton")

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for name in ("random", "star"):
        inputs = make(name, channels)
        x = torch.randn(inputs["target"].shape[0], channels, device=DEVICE)
        results = [form(x, inputs["edge_index"], inputs["edge_attr"]) for form in (compiled, function)]
        for actual, expected in zip(*results, strict=True):
            assert_close(actual, expected)


def test_opcheck():
    inputs = make("random", 3, masked=True)
    plan = ops.edge_plan(inputs["edge_index"], inputs["target"].shape[0])
    told = merged(inputs)["joint"].detach().requires_grad_()
    tensors = [inputs[name].requires_grad_() for name in LEAVES[3:]]
    running = [inputs["running_mean"], inputs["running_variance"]]
    fixed = [*plan, inputs["edge_index"], inputs["mask"].view(torch.uint8), None, *running]
    others = (fixed, 1e-5, True, True, 1e-6, 0.0, 5, True)
    # The moments carry no gradient, which is what opcheck's own comparison of gradients would ask for.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.gssc.gated_messages.default, (told, *tensors, *others), test_utils=tests)


def test_auto_on_the_cpu_is_torch():
    inputs = {name: value.cpu() for name, value in make("random", 4).items()}
    first, second = run("auto", inputs), run("torch", inputs)
    assert torch.equal(first.nodes, second.nodes)
    assert torch.equal(first.edges, second.edges)


@pytest.mark.parametrize("norm", ["layer", "identity"])
def test_other_norms_and_linears_are_called(norm):
    """By the plain loop and by PyTorch's ops alike; the kernels say that they cannot, or need not."""
    inputs, calls = make("random", 4, masked=True), []
    norm = (nn.LayerNorm(4) if norm == "layer" else nn.Identity()).to(DEVICE)
    lin_edge = nn.Linear(4, 4, bias=False).to(DEVICE)
    lin_edge.register_forward_hook(lambda *_: calls.append("lin_edge"))
    joint = merged(inputs)["joint"]
    told = {"x": joint, "tell": told_by(joint, 4), "mask": inputs["mask"]}
    told |= {name: inputs[name] for name in ("edge_index", "edge_attr")}
    results = [ops.gated_messages(**told, lin_edge=lin_edge, norm=norm, backend=b) for b in ("naive", "torch", "auto")]
    for other in results[1:]:
        for actual, expected in zip(other, results[0], strict=True):
            assert_close(actual, expected, tolerance=1e-5)
    assert len(calls) == inputs["edge_attr"].shape[0] + 2
    with pytest.raises(ValueError, match="backend: expected 'torch' or 'auto' for a lin_edge or norm that must be"):
        ops.gated_messages(**told, lin_edge=lin_edge, norm=norm, backend="triton")


def test_edges_that_nobody_needs():
    """Are not returned; statistics move on as ever."""
    inputs = make("random", 4)
    for backend in ("naive", "torch", "triton"):
        out, whole = (run(backend, inputs, need_edges=need) for need in (False, True))
        assert out.edges is None
        assert all(torch.equal(*pair) for pair in zip(out.buffers, whole.buffers, strict=True))
        assert torch.equal(out.nodes, whole.nodes)


def test_bad_input():
    inputs = make("random", 4)
    with pytest.raises(ValueError, match="lin_edge: expected a module where edge_attr is given, got None"):
        run("triton", {name: value for name, value in inputs.items() if name != "weight"})
    with pytest.raises(ValueError, match="tell: expected four modules, to t, s, n and a, got 3"):
        ops.gated_messages(inputs["target"], [nn.Linear(4, 4)] * 3, inputs["edge_index"])
    with pytest.raises(ValueError, match=r"lin_edge.weight: expected shape \[4, 4\], got \[5, 4\]"):
        run("triton", {**inputs, "weight": torch.ones(5, 4, device=DEVICE)})
    with pytest.raises(ValueError, match="mask: expected a boolean tensor"):
        run("triton", {**inputs, "mask": torch.ones(inputs["edge_index"].shape[1], device=DEVICE)})
    with pytest.raises(ValueError, match="x: expected float32, bfloat16 or float16 for backend='triton'"):
        run("triton", {name: v.double() if v.is_floating_point() else v for name, v in inputs.items()})
    with pytest.raises(ValueError, match="backend: expected one of 'auto'"):
        run("fast", inputs)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_many_edges(monkeypatch, kept, exact):
    """By the kernels, as exact products are, or by cuBLAS; gradients of edges as one product, or piece by piece."""
    if not exact:
        monkeypatch.setattr(products, "_plan", lambda *_, **__: None)
    if not kept:
        monkeypatch.setattr(kernels_form, "KEPT", 0)
    monkeypatch.setattr(kernels_form, "PIECE", 64)
    monkeypatch.setattr(products, "MANY", 0)
    check("naive", make(next(iter(EDGES)), 5))


@pytest.mark.parametrize("norm", NORMS)
def test_logits_that_are_not_kept_are_made_anew(monkeypatch, norm):
    """With features of edges and without, masked, apart and side by side: results are the same bit by bit."""
    variants = [make("random", 5, masked=True), merged(make("random", 5)), make("random", 5, with_edges=False)]
    found = []
    for kept in (1 << 25, 0):
        monkeypatch.setattr(kernels_form, "KEPT", kept)
        for inputs in variants:
            leaves = [name for name in ("joint", *LEAVES[:6]) if name in inputs]
            fresh = {name: value.detach().clone().requires_grad_(name in leaves) for name, value in inputs.items()}
            out = run("triton", fresh, norm)
            loss = out.nodes.square().sum() + out.edges.square().sum()
            found.append([out.nodes, out.edges, *torch.autograd.grad(loss, [fresh[name] for name in leaves])])
    for kept, anew in zip(found[:3], found[3:], strict=True):
        assert all(torch.equal(*pair) for pair in zip(kept, anew, strict=True))


def test_a_share_of_several_blocks_of_edges(monkeypatch):
    monkeypatch.setattr(kernels_form, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(kernels_form, "SHARES", 1)
    pairs = torch.randint(9, (150, 2), generator=torch.Generator().manual_seed(0)).tolist()
    check("torch", {key: value.to(DEVICE) for key, value in gated_inputs(9, pairs, 5, True).items()})
