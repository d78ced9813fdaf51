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


MASK = torch.tensor([True, False, True, True, False, True, True])


@pytest.mark.parametrize("momentum", [0.1, None])
def test_masked_rows_do_not_count(float64, momentum):
    masked, plain = BatchNorm(3, momentum=momentum), torch.nn.BatchNorm1d(3, momentum=momentum)
    for _ in range(3):
        x = torch.randn(7, 3, requires_grad=True)
        y = x.detach()[MASK].requires_grad_()
        weight = torch.randn(7, 3)
        out, expected = masked(x, MASK), plain(y)
        assert_close(out[MASK], expected, tolerance=1e-13)
        assert torch.equal(out[~MASK], torch.zeros(2, 3))
        (out * weight).sum().backward()
        (expected * weight[MASK]).sum().backward()
        assert_close(x.grad[MASK], y.grad, tolerance=1e-13)
        assert torch.equal(x.grad[~MASK], torch.zeros(2, 3))
        for ours, theirs in zip(masked.parameters(), plain.parameters(), strict=True):
            assert_close(ours.grad, theirs.grad, tolerance=1e-13)
    assert masked.state_dict().keys() == plain.state_dict().keys()
    for name, buffer in plain.named_buffers():
        assert_close(masked.get_buffer(name).double(), buffer.double(), name, tolerance=1e-13)
    assert_close(masked.eval()(x, MASK)[MASK], plain.eval()(y))


def test_without_a_mask_bits_are_pytorchs():
    ours, theirs, x = BatchNorm(3), torch.nn.BatchNorm1d(3), torch.randn(5, 3)
    assert torch.equal(ours(x), theirs(x))
    assert all(torch.equal(ours.get_buffer(name), buffer) for name, buffer in theirs.named_buffers())


@pytest.mark.parametrize("real", [0, 1])
def test_fewer_than_two_real_rows_use_and_keep_the_running_statistics(float64, real):
    norm = BatchNorm(3)
    norm(torch.randn(10, 3) + 5)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    x = torch.randn(4, 3, requires_grad=True)
    mask = torch.arange(4) < real
    out = norm(x, mask)
    assert_close(out[:real], norm(x[:real]))
    out.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.equal(x.grad[real:], torch.zeros(4 - real, 3))
    assert all(torch.equal(norm.get_buffer(name), buffer) for name, buffer in before.items())


def test_a_large_mean_costs_no_digits():
    x = torch.randn(1000, 2) + 1e4
    mask = torch.arange(1000) < 800
    norm = BatchNorm(2, momentum=1.0)
    out = norm(x, mask)[mask]
    exact = x[mask].double()
    assert_close(norm.running_var.double(), exact.var(0), tolerance=1e-5)
    assert_close(out.double(), (exact - exact.mean(0)) / (exact.var(0, correction=0) + norm.eps).sqrt(), tolerance=1e-3)


def test_half_precision_is_summed_in_float32():
    x = (torch.randn(5000, 2) + 3).bfloat16()
    mask = torch.arange(5000) < 4000
    norm = BatchNorm(2, momentum=1.0)
    assert norm(x, mask).dtype == torch.bfloat16
    assert_close(norm.running_mean, x[mask].float().mean(0), tolerance=1e-6)
    assert_close(norm.running_var, x[mask].float().var(0), tolerance=1e-5)


def test_masks_need_running_statistics_and_their_shape():
    with pytest.raises(ValueError, match="track_running_stats: expected True"):
        BatchNorm(3, track_running_stats=False)(torch.ones(4, 3), torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask: expected shape \[4\], got \[3\]"):
        BatchNorm(3)(torch.ones(4, 3), torch.ones(3, dtype=torch.bool))


def test_names():
    assert isinstance(make_norm("layer", 3), torch.nn.LayerNorm)
    assert isinstance(make_norm("none", 3), torch.nn.Identity)
    with pytest.raises(ValueError, match="norm: expected one of 'batch', 'layer', 'none', got 'group'"):
        make_norm("group", 3)
