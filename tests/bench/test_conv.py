import torch

from gssc import GSSConv
from gssc.bench.conv import CHANNELS, explicit_z, inputs, step
from gssc.testing import assert_close


def test_both_sides_compute_the_same_and_all_gradients():
    conv = GSSConv(CHANNELS)
    data = inputs(40)
    ours = step(conv, conv, data)()
    theirs = step(conv, lambda *d: explicit_z(conv, *d), data)()
    assert len(ours) == len(list(conv.parameters())) + 2
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other)


def test_inputs_are_reproducible():
    assert torch.equal(inputs(5)[0], inputs(5)[0])
