import pytest
import torch

from gssc.nn import BatchNorm
from gssc.nn.norm import make_norm
from gssc.testing import assert_close


def test_batch_norm_is_pytorchs_for_two_rows_and_more(float64):
    ours, theirs, x = BatchNorm(3), torch.nn.BatchNorm1d(3), torch.randn(5, 3)
    assert_close(ours(x), theirs(x))
    assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("rows", [0, 1])
def test_small_batches_use_and_keep_the_running_statistics(rows):
    norm = BatchNorm(3)
    norm(torch.randn(10, 3) + 5)
    before = norm.running_mean.clone()
    out = norm(torch.randn(rows, 3))
    assert out.shape == (rows, 3)
    assert torch.isfinite(out).all()
    assert torch.equal(norm.running_mean, before)


def test_names():
    assert isinstance(make_norm("layer", 3), torch.nn.LayerNorm)
    assert isinstance(make_norm("none", 3), torch.nn.Identity)
    with pytest.raises(ValueError, match="norm: expected one of 'batch', 'layer', 'none', got 'group'"):
        make_norm("group", 3)
