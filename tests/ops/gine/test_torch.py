"""Sums as bags of rows, on a CPU with a plan."""

import pytest
import torch
from edge_batches import EDGES, gine_inputs

from gssc import ops
from gssc.testing import assert_matches_reference


def with_plan(x, edge_attr, edge_index):
    plan = ops.edge_plan(edge_index, x.shape[0])
    return ops.gine_messages(x, edge_attr, edge_index, plan, backend="torch")


def naive(x, edge_attr, edge_index):
    return ops.gine_messages(x, edge_attr, edge_index, backend="naive")


@pytest.mark.usefixtures("float64", "poisoned")
@pytest.mark.parametrize(("nodes", "pairs"), EDGES.values(), ids=EDGES.keys())
@pytest.mark.parametrize("attributes", [True, False])
def test_matches_naive(nodes, pairs, attributes):
    inputs = gine_inputs(nodes, pairs, 5)
    if not attributes:
        inputs["edge_attr"] = None
    leaves = [name for name in ("x", "edge_attr") if inputs[name] is not None]
    results = []
    for function in (with_plan, naive):
        own = inputs | {name: inputs[name].clone().requires_grad_() for name in leaves}
        out = function(**own)
        # The plain loop makes no graph where there is no edge.
        total = out.square().sum() + sum(0.0 * own[name].sum() for name in leaves)
        results.append([out, *torch.autograd.grad(total, [own[name] for name in leaves])])
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("learned", [True, False])
def test_epsilon(learned):
    inputs = gine_inputs(*EDGES["random"], 4)
    eps = torch.tensor([0.3], requires_grad=learned)
    leaves = [inputs["x"].requires_grad_(), *([eps] if learned else [])]
    plan = ops.edge_plan(inputs["edge_index"], inputs["x"].shape[0])
    results = []
    for backend in ("torch", "naive"):
        out = ops.gine_messages(**inputs, plan=plan, backend=backend, eps=eps)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)
    torch.testing.assert_close(results[0][0], naive(**inputs) + 1.3 * inputs["x"], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_second_derivatives():
    nodes, pairs = EDGES["random"]
    inputs = gine_inputs(nodes, pairs, 3)
    leaves = [inputs[name].requires_grad_() for name in ("x", "edge_attr")]
    assert torch.autograd.gradgradcheck(lambda x, e: with_plan(x, e, inputs["edge_index"]).square(), leaves)
    leaves.append(torch.tensor([0.3], requires_grad=True))
    plan = ops.edge_plan(inputs["edge_index"], nodes)
    assert torch.autograd.gradgradcheck(
        lambda x, e, eps: ops.gine_messages(x, e, inputs["edge_index"], plan, eps=eps).square(), leaves
    )


def test_matches_naive_in_float32():
    nodes, pairs = EDGES["random"]
    assert_matches_reference(with_plan, naive, gine_inputs(nodes, pairs, 4), tolerance=1e-6)


def test_half_precision_and_mixed_types_are_gathered():
    inputs = gine_inputs(*EDGES["random"], 4)
    inputs |= {name: inputs[name].bfloat16() for name in ("x", "edge_attr")}
    plan = ops.edge_plan(inputs["edge_index"], 9)
    assert ops.gine_messages(**inputs, plan=plan).dtype == torch.bfloat16
    assert ops.gine_messages(**inputs | {"x": inputs["x"].float()}, plan=plan).dtype == torch.float32
