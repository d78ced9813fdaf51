"""Eigenvectors that are padded once; the rest is tested through backend="eager"."""

import pytest
import torch

from gssc.nn import GSSConv
from gssc.ops.conv import plain

pytestmark = pytest.mark.usefixtures("float64")


def test_changed_eigenvectors_are_seen():
    conv = GSSConv(4, 4, kernel="shared", out_proj=True)
    x, phi, vectors, ptr = torch.randn(7, 4), torch.randn(2, 3, 4), torch.randn(7, 3), torch.tensor([0, 3, 7])
    first = conv(x, phi, vectors, ptr=ptr)
    vectors.mul_(2.0)
    changed = conv(x, phi, vectors, ptr=ptr)
    assert not torch.allclose(first, changed)
    torch.testing.assert_close(changed, conv(x, phi, vectors.clone(), ptr=ptr))
    ptr.copy_(torch.tensor([0, 4, 7]))
    torch.testing.assert_close(conv(x, phi, vectors, ptr=ptr), conv(x, phi, vectors.clone(), ptr=ptr.clone()))


def test_kept_for_layers_and_gone_with_the_tensor():
    ptr, vectors = torch.tensor([0, 3, 7]), torch.randn(7, 3)
    plain._KEPT.clear()
    assert plain.eigenvectors_once(ptr, vectors) is plain.eigenvectors_once(ptr, vectors)
    assert len(plain._KEPT) == 1
    del vectors
    assert len(plain._KEPT) == 0
    batches = [torch.randn(7, 3) for _ in range(20)]
    for batch in batches:
        plain.eigenvectors_once(ptr, batch)
    assert len(plain._KEPT) <= plain.MOST_KEPT
