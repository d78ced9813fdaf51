"""Layers whose norms are one op, against the same layers with PyTorch's; kernels as in ``ops/residual_norm``."""

import copy

import pytest
import torch
from torch import nn

from gssc import GSSCLayer, GSSConv
from gssc.nn import BatchNorm, GatedGCN, fused_norm
from gssc.nn.gine import GINE
from gssc.nn.norm import batch_norms, reestimate_batch_norms
from gssc.testing import assert_close

pytest.importorskip("triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 6], [1, 0, 2, 1, 4, 3, 6]], device=DEVICE)
PTR = torch.tensor([0, 3, 6, 8], device=DEVICE)


@pytest.fixture
def fusing(monkeypatch, float64):
    """Let the op stand for norms here too, and in float64, when called with True."""

    def switch(on):
        monkeypatch.setattr(fused_norm, "can_fuse", lambda *tensors: on)

    return switch


def inputs(channels):
    vectors = torch.randn(8, 3, device=DEVICE)
    vectors[6:] = 0.0
    return {
        "x": torch.randn(8, channels, device=DEVICE),
        "edge_index": EDGES,
        "phi": torch.randn(3, 3, channels, device=DEVICE),
        "vectors": vectors,
        "edge_attr": torch.randn(7, channels, device=DEVICE),
        "ptr": PTR,
        "node_mask": torch.arange(8, device=DEVICE) < 6,
        "edge_mask": torch.arange(7, device=DEVICE) < 6,
    }


def outcome(layer, given, **more):
    x = given["x"].clone().requires_grad_()
    out, _ = layer(**{**given, "x": x}, **more)
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
    for norm in batch_norms(layer).values():
        norm.train(mode in ("training", "norms in training"))
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
    first, again, other = (
        outcome(copy.deepcopy(layer), given, seed=seed)["output"] for seed in (seeds[0], seeds[0], seeds[1])
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    drawn = []
    for _ in range(2):
        torch.manual_seed(1)
        drawn.append(layer(**given)[0])
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], layer(**given)[0])


def test_nodes_of_gated_gcn(fusing):
    module, x, hidden = GatedGCN(4).to(DEVICE), torch.randn(8, 4, device=DEVICE), torch.randn(8, 4, device=DEVICE)
    mask, found = torch.arange(8, device=DEVICE) < 6, []
    for on in (False, True):
        fusing(on)
        found.append(copy.deepcopy(module)._fused_node(x, hidden, mask))
    assert_close(*found, tolerance=1e-12)


def test_norms_that_do_not_fuse(fusing):
    fusing(True)
    x = torch.randn(5, 3)
    norm = BatchNorm(3)
    assert fused_norm.norms_fuse([norm, None], True, x)
    assert fused_norm.norms_fuse([norm], False, x)  # as statistics are re-estimated
    assert not fused_norm.norms_fuse([BatchNorm(3).eval()], True, x)
    assert not fused_norm.norms_fuse([norm, BatchNorm(3).eval()], False, x)
    assert not fused_norm.norms_fuse([norm, BatchNorm(3, momentum=0.5)], True, x)
    for other in (nn.LayerNorm(3), BatchNorm(3, affine=False), BatchNorm(3, track_running_stats=False)):
        assert not fused_norm.norms_fuse([other], True, x)
    norm.register_forward_pre_hook(lambda *_: None)
    assert not fused_norm.norms_fuse([norm], True, x)


def test_statistics_are_reestimated_all_the_same(fusing):
    layer, given, found = GSSCLayer(4, GINE(4), GSSConv(4)).to(DEVICE), inputs(4), []
    for on in (False, True):
        fusing(on)
        own = copy.deepcopy(layer)
        reestimate_batch_norms(own, [given])
        found.append(dict(own.named_buffers()))
    for name, value in found[0].items():
        assert torch.equal(found[1][name], value), name
