from types import SimpleNamespace

import torch
from torch import nn

from benchmarks import conv as conv_bench
from benchmarks.conv import CHANNELS, attention_step, explicit_z, inputs, step
from benchmarks.peers import HEADS
from gssc import GSSConv, SoftmaxAttention
from gssc.testing import assert_close


def test_both_sides_compute_the_same_and_all_gradients():
    conv = GSSConv(CHANNELS)
    data = inputs(40)
    ours = step(conv, conv, data)()
    theirs = step(conv, lambda *d: explicit_z(conv, *d), data)()
    assert len(ours) == len(list(conv.parameters())) + 2
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)


def test_attention_is_that_of_the_package(monkeypatch):
    """The same weights in `SoftmaxAttention`, whose projections have the same layout."""
    made = []
    monkeypatch.setattr(
        conv_bench, "nn", SimpleNamespace(Linear=lambda *size: made.append(nn.Linear(*size)) or made[-1])
    )
    x = inputs(30)[0]
    found = attention_step(x)()
    reference = SoftmaxAttention(CHANNELS, HEADS)
    reference.lin_qkv, reference.lin_out = made
    expected = torch.autograd.grad(reference(x).sum(), [*made[0].parameters(), *made[1].parameters(), x])
    for mine, other in zip(found, expected, strict=True):
        assert_close(mine, other)


def test_inputs_are_reproducible():
    assert torch.equal(inputs(5)[0], inputs(5)[0])
