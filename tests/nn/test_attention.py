import pytest
import torch

from gssc import SoftmaxAttention
from gssc.ops.context import GraphContext
from gssc.testing import assert_close


def test_equals_pytorchs_multihead_attention(float64):
    ours, theirs = SoftmaxAttention(8, heads=2), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    theirs.in_proj_weight.data, theirs.in_proj_bias.data = ours.lin_qkv.weight.data, ours.lin_qkv.bias.data
    theirs.out_proj.load_state_dict(ours.lin_out.state_dict())
    x = torch.randn(5, 8)
    assert_close(ours(x), theirs(x, x, x)[0])


def test_attends_within_each_graph_only(float64):
    attend, x = SoftmaxAttention(8), torch.randn(7, 8)
    batch = torch.tensor([0, 0, 0, 1, 1, 3, 3])
    together = attend(x, batch=batch)
    assert_close(together, torch.cat([attend(x[batch == g]) for g in (0, 1, 3)]))
    assert_close(attend(x, torch.zeros(5, 2, 3), None, batch), together)
    for largest in (None, 3, 8):
        context = GraphContext(7, 4, torch.tensor([0, 3, 5, 5, 7]), batch, largest=largest)
        assert_close(attend(x, context=context), together)


def test_bad_input():
    with pytest.raises(ValueError, match="heads: expected a divisor of channels = 6"):
        SoftmaxAttention(6, heads=4)
