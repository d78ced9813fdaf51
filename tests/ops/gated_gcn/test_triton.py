"""The kernels against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch
from edge_batches import EDGES, gated_inputs

from gssc import ops
from gssc.ops.edges import launch
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# A GPU compiles every shape anew, seconds each: there, of variants that differ in little, one is enough.
interpreted = pytest.mark.skipif(DEVICE == "cuda", reason="for the interpreter")
NORMS = ("none", "eval", "training")


def run(backend, inputs, norm="training", **settings):
    """Nodes and edges as one tensor, so that one weighted sum reaches all gradients."""
    inputs = dict(inputs)
    parts = {name: inputs.pop(name) for name in ("scale", "shift", "running_mean", "running_variance")}
    edge_norm = None if norm == "none" else ops.EdgeNorm(*parts.values(), 1e-5, norm == "training")
    return ops.gated_gcn(**inputs, norm=edge_norm, backend=backend, **settings)


def joined(backend, norm, settings, fixed, **inputs):
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
    apart = [inputs.pop(name) for name in ("target", "source", "neighbor")]
    own = torch.randn(apart[0].shape, generator=torch.Generator().manual_seed(1)).to(apart[0])
    return {"target": torch.cat([*apart, own], 1), "source": None, "neighbor": None, **inputs}


def check(reference, inputs, norm="training", tolerance=1e-5, **settings):
    """Output, moments and every gradient. Running statistics carry none."""
    inputs, fixed = dict(inputs), {}
    for name in ("running_mean", "running_variance"):
        fixed[name] = inputs.pop(name)
    if norm == "none":
        fixed |= {name: inputs.pop(name) for name in ("scale", "shift")}
    fixed |= {name: inputs.pop(name) for name in list(inputs) if inputs[name] is None}
    functions = [partial(joined, backend, norm, settings, fixed) for backend in ("fused", reference)]
    assert_matches_reference(*functions, inputs, tolerance=tolerance)
    found, expected = (run(backend, {**inputs, **fixed}, norm, **settings) for backend in ("fused", reference))
    for name in ("n", "mean", "squares"):
        assert_close(getattr(found, name), getattr(expected, name), name, tolerance)


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
    check("eager", merged(make("random", 140)), norm)


@pytest.mark.parametrize("backend", ["naive", "eager"])
def test_side_by_side_is_the_same_op(backend):
    """In float64: a is added, and the gradient is those of the four parts."""
    inputs = {name: v.double() if v.is_floating_point() else v for name, v in make("random", 5).items()}
    joint = merged(inputs)
    leaf = joint["target"].requires_grad_()
    parts = [part.detach().clone().requires_grad_() for part in leaf.chunk(4, 1)]
    apart = {**inputs, **dict(zip(("target", "source", "neighbor"), parts, strict=False))}
    found, expected = run(backend, joint), run(backend, apart)
    losses = [out.square().sum() for out in (found.nodes, expected.nodes + parts[3])]
    losses = [loss + out.edges.pow(3).sum() for loss, out in zip(losses, (found, expected), strict=True)]
    assert_close(found.nodes, expected.nodes + parts[3])
    assert_close(torch.autograd.grad(losses[0], leaf)[0], torch.cat(torch.autograd.grad(losses[1], parts), 1))


def test_side_by_side_in_half_precision_keeps_the_sums_unrounded():
    joint = merged(make("random", 32))
    results = []
    for backend, dtype in (("fused", torch.bfloat16), ("eager", torch.float64)):
        kept = ("scale", "shift", "running_mean", "running_variance")
        fresh = {
            name: v.bfloat16().to(dtype) if v is not None and v.is_floating_point() and name not in kept else v
            for name, v in joint.items()
        }
        fresh["target"].requires_grad_()
        out = run(backend, fresh)
        loss = out.nodes.double().square().sum() + out.edges.double().square().sum()
        results.append([out.nodes, out.edges, *torch.autograd.grad(loss, fresh["target"])])
    for actual, expected in zip(*results, strict=True):
        assert actual.dtype == torch.bfloat16
        assert (actual.double() - expected).norm() < 3e-2 * expected.norm()


@pytest.mark.parametrize("channels", [pytest.param(1, marks=interpreted), 32, pytest.param(96, marks=interpreted), 140])
def test_widths_and_shares(channels, monkeypatch):
    """Programs with several nodes, several blocks of channels, blocks that end beyond the last channel."""
    monkeypatch.setattr(launch, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launch, "PROGRAMS", 4)
    check("eager", make("random", channels))


@interpreted
def test_without_residual():
    check("eager", make("random", 5), residual=False)


def test_large_means_cost_no_digits():
    inputs = make("random", 5)
    inputs["bias"] = inputs["bias"] + 1000.0
    wide = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    found, expected = run("fused", inputs), run("eager", wide)
    assert_close(found.squares.double(), expected.squares, tolerance=1e-3)
    assert_close(found.mean.double(), expected.mean, tolerance=1e-6)


def test_only_nodes_or_only_edges_are_used():
    """The last layer of a model drops its edges: their gradient is absent, not zero."""
    inputs = make("random", 5)
    leaves = ("target", "source", "neighbor", "edge_attr", "weight", "bias", "scale", "shift")
    for part in ("nodes", "edges"):
        found = []
        for backend in ("fused", "eager"):
            fresh = {key: value.detach().clone().requires_grad_(key in leaves) for key, value in inputs.items()}
            loss = getattr(run(backend, fresh), part).square().sum()
            grads = torch.autograd.grad(loss, [fresh[name] for name in leaves], allow_unused=True)
            found.append([torch.zeros(1, device=DEVICE) if grad is None else grad for grad in grads])
        for name, actual, expected in zip(leaves, *found, strict=True):
            assert_close(actual, expected.expand_as(actual), f"gradient of {name} through {part}", 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=interpreted)])
def test_half_precision(dtype):
    inputs = make("random", 32)
    kept = ("scale", "shift", "running_mean", "running_variance")
    floating = [name for name, value in inputs.items() if value.is_floating_point() and name not in kept[2:]]
    results = []
    for backend, convert in (("fused", dtype), ("eager", torch.float64)):
        fresh = {name: value.to(dtype) if name not in kept else value for name, value in inputs.items()}
        fresh = {
            name: value.detach().to(convert if name not in kept or convert == torch.float64 else value.dtype)
            if inputs[name].is_floating_point()
            else inputs[name]
            for name, value in fresh.items()
        }
        for name in floating:
            fresh[name].requires_grad_()
        out = run(backend, fresh)
        loss = out.nodes.double().square().sum() + out.edges.double().square().sum()
        results.append([out.nodes, out.edges, *torch.autograd.grad(loss, [fresh[name] for name in floating])])
    for name, actual, expected in zip(["nodes", "edges", *floating], *results, strict=True):
        error = (actual.double() - expected).norm() / expected.norm()
        assert error < 3e-2, name
        assert actual.dtype == (torch.float32 if name in kept else dtype), name


def test_dropout_drops_the_same_in_both_directions():
    inputs = make("random", 32)
    attr = inputs["edge_attr"]
    whole = run("fused", inputs).edges - attr
    fresh = {**inputs, "shift": inputs["shift"].clone().requires_grad_()}
    torch.manual_seed(3)
    out = run("fused", fresh, dropout=0.25)
    part = (out.edges - attr).detach()
    kept = part != 0
    assert_close(part[kept], whole[kept] / 0.75, tolerance=1e-5)
    share = float(kept.sum() / (whole != 0).sum())
    assert abs(share - 0.75) < 0.06
    (gradient,) = torch.autograd.grad(out.edges.sum(), fresh["shift"])
    assert_close(gradient, kept.float().sum(0) / 0.75, tolerance=1e-5)
    assert not torch.equal(run("fused", inputs, dropout=0.25).edges, out.edges)
    torch.manual_seed(3)
    assert torch.equal(run("fused", inputs, dropout=0.25).edges, out.edges)


def test_what_nodes_tell_edges_is_computed_anew_where_its_origin_is_known():
    """Gradients, and gradients of gradients, in x and in weights are those of the op that keeps the three."""
    inputs = make("random", 5)
    nodes = inputs["target"].shape[0]
    linears = [part for _ in range(3) for part in (torch.randn(5, 4, device=DEVICE), torch.randn(5, device=DEVICE))]
    leaves = [part.requires_grad_() for part in (torch.randn(nodes, 4, device=DEVICE), *linears)]
    found = []
    for known in (True, False):
        told = [torch.nn.functional.linear(leaves[0], *leaves[at : at + 2]) for at in (1, 3, 5)]
        fresh = {**inputs, **dict(zip(("target", "source", "neighbor"), told, strict=True))}
        out = run("fused", fresh, origin=ops.Origin(*leaves) if known else None)
        loss = out.nodes.square().sum() + out.edges.square().sum()
        plain = torch.autograd.grad(loss, leaves, retain_graph=True)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        found.append([*plain, *torch.autograd.grad(sum(g.square().sum() for g in first), leaves)])
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_results_repeat_bit_by_bit():
    inputs = make("random", 5)
    for given in (inputs, merged(inputs)):
        for first, second in zip(run("fused", given), run("fused", given), strict=True):
            assert torch.equal(first, second)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_differentiable_twice(side_by_side):
    inputs = merged(make("random", 3)) if side_by_side else make("random", 3)
    leaves = ("target", "source", "neighbor", "edge_attr", "weight", "bias", "scale", "shift")
    leaves = tuple(name for name in leaves if inputs[name] is not None)
    found = []
    for backend in ("fused", "eager"):
        fresh = {
            key: value if value is None else value.detach().clone().requires_grad_(key in leaves)
            for key, value in inputs.items()
        }
        out = run(backend, fresh)
        tensors = [fresh[name] for name in leaves]
        first = torch.autograd.grad(out.nodes.square().sum() + out.edges.square().sum(), tensors, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), tensors))
    for name, actual, expected in zip(leaves, *found, strict=True):
        assert_close(actual, expected, name, tolerance=1e-3)


def test_gradients_with_a_graph_where_inputs_depend_on_each_other():
    inputs = make("random", 3)
    inputs["target"] = inputs["target"].detach().clone().requires_grad_()
    inputs |= {"source": inputs["target"].sin(), "neighbor": inputs["target"].cos()}
    out = run("fused", inputs)
    loss = out.nodes.square().sum() + out.edges.square().sum()
    (expected,) = torch.autograd.grad(loss, inputs["target"], retain_graph=True)
    (actual,) = torch.autograd.grad(loss, inputs["target"], create_graph=True)
    assert_close(actual.detach(), expected, tolerance=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole():
    torch._dynamo.reset()

    def function(**inputs):
        out = run("fused", inputs)
        return out.nodes, out.edges

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for inputs in (make("random", 4), make("star", 4), merged(make("random", 4)), merged(make("star", 4))):
        for actual, expected in zip(compiled(**inputs), function(**inputs), strict=True):
            assert_close(actual, expected)


def test_opcheck():
    inputs = make("random", 3, masked=True)
    plan = ops.edge_plan(inputs["edge_index"], inputs["target"].shape[0])
    names = ("target", "source", "neighbor", "edge_attr", "weight", "bias", "scale", "shift")
    tensors = [inputs[name].requires_grad_() for name in names]
    running = [inputs["running_mean"], inputs["running_variance"]]
    numbers = (1e-5, True, True, 1e-6, 0.0, True)
    arguments = (*tensors, *running, inputs["edge_index"], inputs["mask"], None, *plan, *[None] * 7, *numbers)
    # The moments carry no gradient, which is what opcheck's own comparison of gradients would ask for.
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    joint = merged(inputs)["target"].detach().requires_grad_()
    for given in (arguments, (joint, None, None, *arguments[3:])):
        torch.library.opcheck(torch.ops.gssc.gated_gcn_fused.default, given, test_utils=tests)


def test_auto_on_the_cpu_is_eager():
    inputs = {name: value.cpu() for name, value in make("random", 4).items()}
    for first, second in zip(run("auto", inputs)[:5], run("eager", inputs)[:5], strict=True):
        assert torch.equal(first, second)


def test_bad_input():
    inputs = make("random", 4)
    with pytest.raises(ValueError, match="weight: expected given exactly when edge_attr is, got only one of the two"):
        run("fused", {name: value for name, value in inputs.items() if name != "weight"})
    with pytest.raises(ValueError, match="neighbor: expected given exactly when source is, got only one of the two"):
        run("fused", {**inputs, "source": None})
    with pytest.raises(ValueError, match=r"target: expected t, s, n and a side by side, \[N, 4C\]"):
        run("fused", {**make("random", 5), "source": None, "neighbor": None})
    with pytest.raises(ValueError, match=r"dropout: expected 0\.0 for backend='naive', got 0\.5"):
        run("naive", inputs, dropout=0.5)
    with pytest.raises(ValueError, match="mask: expected a boolean tensor"):
        run("fused", {**inputs, "mask": torch.ones(inputs["edge_index"].shape[1], device=DEVICE)})
    with pytest.raises(ValueError, match="target: expected float32, bfloat16 or float16 for backend='fused'"):
        run("fused", {**inputs, "target": inputs["target"].double()})


def test_edges_are_projected_piece_by_piece(monkeypatch):
    """What keeps products below 2³¹ numbers, at 20."""
    from gssc.ops.gated_gcn import triton as fused

    monkeypatch.setattr(fused, "LARGEST", 20)
    check("naive", make(next(iter(EDGES)), 5))
