"""Layers whose norms are one op, against the same layers with PyTorch's."""

import copy

import pytest
import torch
from torch import nn

from gssc import GINE, GatedGCN, GSSCLayer, GSSConv, graph_context
from gssc.nn import BatchNorm
from gssc.nn.norm import batch_norms, reestimate_batch_norms
from gssc.ops import Branch, norm
from gssc.testing import assert_close

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 6], [1, 0, 2, 1, 4, 3, 6]], device=DEVICE)
BATCH = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2], device=DEVICE)


@pytest.fixture
def fusing(pretend_gpu, float64):
    """Let the op stand for norms here too, and in float64, when called with True."""
    return lambda on: pretend_gpu(on, norm)


def inputs(channels):
    vectors = torch.randn(8, 3, device=DEVICE)
    vectors[6:] = 0.0
    return {
        "x": torch.randn(8, channels, device=DEVICE),
        "edge_index": EDGES,
        "phi": torch.randn(3, 3, channels, device=DEVICE),
        "vectors": vectors,
        "batch": BATCH,
        "edge_attr": torch.randn(7, channels, device=DEVICE),
    }


def context(**more):
    nodes, edges = torch.arange(8, device=DEVICE) < 6, torch.arange(7, device=DEVICE) < 6
    made = graph_context(8, 3, BATCH, EDGES, node_mask=nodes, edge_mask=edges)
    for name, value in more.items():
        setattr(made, name, value)
    return made


def outcome(layer, arguments, **more):
    x = arguments["x"].clone().requires_grad_()
    out, _ = layer(**{**arguments, "x": x}, context=context(**more))
    out.pow(3).sum().backward()
    gradients = {name: p.grad for name, p in layer.named_parameters() if p.grad is not None}
    return {"output": out, "x": x.grad, **gradients, **dict(layer.named_buffers())}


PARTS = {
    "both": (GINE, GSSConv),
    "local": (GINE, None),
    "global": (None, GSSConv),
    "own residual": (GatedGCN, GSSConv),
}


@pytest.mark.parametrize("mode", ["training", "evaluation", "norms in training", "norms frozen"])
@pytest.mark.parametrize("parts", PARTS)
def test_a_layer_computes_the_same(fusing, parts, mode):
    local, glob = (None if part is None else part(4) for part in PARTS[parts])
    dropout = 0.0 if mode in ("training", "norms frozen") else 0.5  # which draws differently in the other form
    layer = GSSCLayer(4, local, glob, dropout, dropout, dropout).to(DEVICE).train(mode in ("training", "norms frozen"))
    for module in batch_norms(layer).values():
        module.train(mode in ("training", "norms in training"))
    given, found = inputs(4), []
    for on in (False, True):
        fusing(on)
        found.append(outcome(copy.deepcopy(layer), given))
    expected, actual = found
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(actual[name].double(), value.double(), name, 1e-10)


def test_dropout_repeats_with_its_seed_and_only_then(fusing):
    fusing(True)
    layer = GSSCLayer(4, GINE(4), GSSConv(4), 0.2, 0.5, 0.3).to(DEVICE)
    given, seeds = inputs(4), torch.arange(8, dtype=torch.int32, device=DEVICE).view(2, 4)
    drawn = []
    for seed in (seeds[0], seeds[0], seeds[1]):
        same = copy.deepcopy(layer)
        drawn.append(outcome(same, given, seeds={same: seed})["output"])
    first, again, other = drawn
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(layer(**given, context=context())[0])
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], layer(**given, context=context())[0])


def test_norms_that_do_not_fuse(fusing):
    fusing(True)
    x = torch.randn(5, 3)

    def fuse(norms, training):
        return norm._fusible(x, [Branch(x, module) for module in norms], training) is not None

    plain = BatchNorm(3)
    assert fuse([plain], True)
    assert fuse([plain], False)  # as statistics are re-estimated
    assert not fuse([BatchNorm(3).eval()], True)
    assert not fuse([plain, BatchNorm(3).eval()], False)
    assert not fuse([plain, BatchNorm(3, momentum=0.5)], True)
    for other in (nn.LayerNorm(3), BatchNorm(3, affine=False), BatchNorm(3, track_running_stats=False)):
        assert not fuse([other], True)
    plain.register_forward_pre_hook(lambda *_: None)
    assert not fuse([plain], True)


def test_statistics_are_reestimated_all_the_same(fusing):
    layer, given, found = GSSCLayer(4, GINE(4), GSSConv(4)).to(DEVICE), inputs(4), []
    for on in (False, True):
        fusing(on)
        own = copy.deepcopy(layer)
        reestimate_batch_norms(own, [{**given, "context": context()}])
        found.append(dict(own.named_buffers()))
    for name, value in found[0].items():
        assert torch.equal(found[1][name], value), name


def test_a_norm_that_somebody_watches_or_rewrote_is_called():
    calls = []
    layer = GSSCLayer(8, GatedGCN(8))
    for name, module in layer.named_modules():
        if isinstance(module, BatchNorm) and name != "local.norm_edge":
            module.register_full_backward_hook(lambda *_, name=name: calls.append(name))
    layer(torch.randn(5, 8, requires_grad=True), torch.tensor([[0, 1], [1, 0]]))[0].sum().backward()
    assert sorted(calls) == ["local.norm_node", "norm_ffn", "norm_local"]

    class Zeros(BatchNorm):
        def forward(self, x, mask=None):
            return torch.zeros_like(x)

    assert not norm.residual_norm(None, [Branch(torch.randn(4, 3), Zeros(3))], training=True).any()


def test_bad_arguments_of_the_op():
    branch = Branch(torch.randn(4, 3), BatchNorm(3))
    with pytest.raises(ValueError, match=r"backend: expected one of .*did you mean 'triton'"):
        norm.residual_norm(None, [branch], training=True, backend="tritn")
    with pytest.raises(ValueError, match="branches: expected one or two, got none"):
        norm.residual_norm(None, [], training=True)
