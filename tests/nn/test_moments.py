import torch

from gssc.nn.moments import Moments, merge_moments, row_moments
from gssc.testing import assert_close


def test_rows_and_masked_rows(float64):
    x, mask = torch.randn(6, 3) + 100, torch.tensor([True, False, True, True, False, True])
    for moments, rows in ((row_moments(x), x), (row_moments(x, mask), x[mask])):
        assert moments.n == rows.shape[0]
        assert_close(moments.mean, rows.mean(0), tolerance=1e-15)
        assert_close(moments.squares, rows.var(0) * (rows.shape[0] - 1), tolerance=1e-14)


def test_no_rows(float64):
    for moments in (row_moments(torch.ones(0, 3)), row_moments(torch.ones(2, 3), torch.zeros(2, dtype=torch.bool))):
        assert all(torch.equal(part, torch.zeros_like(part)) for part in moments)


def test_merging_sets_is_taking_the_moments_of_their_union(float64):
    x = torch.randn(12, 3, requires_grad=True)
    parts = [row_moments(part + 1e3) for part in x.split([4, 0, 1, 7])]
    merged = merge_moments(Moments(*(torch.stack(sets).view(4, -1) for sets in zip(*parts, strict=True))))
    whole = row_moments(x + 1e3)
    for actual, expected in zip(merged, whole, strict=True):
        assert_close(actual, expected, tolerance=1e-12)
    gradients = [torch.autograd.grad(moments.squares.sum(), x, retain_graph=True)[0] for moments in (merged, whole)]
    assert_close(*gradients, tolerance=1e-12)


def test_gradients(float64):
    mask = torch.tensor([True, False, True, True])
    assert torch.autograd.gradcheck(lambda x: row_moments(x, mask)[1:], torch.randn(4, 2, requires_grad=True))
