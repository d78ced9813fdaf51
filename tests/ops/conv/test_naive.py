import torch
from batches import conv_inputs

from gssc import ops


def test_double_sum_by_hand(float64):
    """Two nodes, one frequency, one channel: everything can be multiplied out."""
    p = torch.tensor([[2.0], [3.0]])
    x = torch.tensor([[5.0], [7.0]])
    gain, self_gain = torch.tensor([[[11.0]]]), torch.tensor([[[13.0]]])
    out = ops.gssc_conv(x, x, p, gain, self_gain, torch.tensor([0, 2]), backend="naive")
    mixed = 2 * 5 + 3 * 7
    assert out.tolist() == [[2 * 11 * mixed + 4 * 13 * 5], [3 * 11 * mixed + 9 * 13 * 7]]


def test_shared_gain_is_the_same_gain_for_every_channel(float64):
    inputs = conv_inputs([3, 5], 4, 6, shared=True)
    wide = {**inputs, "gains": inputs["gains"].expand(-1, -1, 6), "self_gains": inputs["self_gains"].expand(-1, -1, 6)}
    torch.testing.assert_close(
        ops.gssc_conv(**inputs, backend="naive"), ops.gssc_conv(**wide, backend="naive"), rtol=0, atol=1e-12
    )
