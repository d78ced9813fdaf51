"""Rows by number: what PyTorch reads, with a gradient that is a sum over stretches of sorted readers."""

import torch
from torch.autograd import gradcheck, gradgradcheck

from gssc.ops.graph_sums import gathered, segment_sum
from gssc.testing import assert_close


def readers(nodes, count, sort):
    index = torch.randint(nodes - 1, (count,))  # nobody reads the last row
    index = index.sort().values if sort else index
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), torch.bincount(index, minlength=nodes).cumsum(0)])
    return index, ptr, None if sort else index.argsort(stable=True)


def test_values_and_gradients(float64):
    for nodes, count, sort in ((6, 20, True), (6, 20, False), (3, 1, False), (4, 0, True)):
        rows, table = torch.randn(nodes, 3, 2, requires_grad=True), readers(nodes, count, sort)
        out = gathered(rows, *table)
        assert torch.equal(out, rows[table[0]])
        change = torch.randn_like(out)
        (ours,), (theirs,) = (torch.autograd.grad((one * change).sum(), rows) for one in (out, rows[table[0]]))
        assert_close(ours, theirs)
    rows, table = torch.randn(5, 2, requires_grad=True), readers(5, 9, False)
    assert gradcheck(lambda x: gathered(x, *table), rows)
    assert gradgradcheck(lambda x: gathered(x, *table).square(), rows)


def test_its_gradient_is_the_sum_over_each_stretch(float64):
    index, ptr, order = readers(5, 30, False)
    rows, change = torch.randn(5, 4, requires_grad=True), torch.randn(30, 4)
    (found,) = torch.autograd.grad((gathered(rows, index, ptr, order) * change).sum(), rows)
    assert_close(found, segment_sum(change[order], index[order], ptr, backend="naive"))


def test_opcheck():
    rows = torch.randn(6, 3, requires_grad=True)
    for sort in (True, False):
        torch.library.opcheck(torch.ops.gssc.gathered.default, (rows, *readers(6, 8, sort)))
