"""Eigenvectors that are padded once; the rest is tested through backend="torch"."""

import pytest
import torch
from batches import conv_inputs

from gssc import ops
from gssc.ops.conv import torch as by_torch

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("sizes", [[3, 4], [4, 4], [40, 2, 9]], ids=["one bucket", "equal", "several buckets"])
def test_changed_eigenvectors_are_seen(sizes):
    inputs = conv_inputs(sizes, 3, 4)
    before = ops.gssc_conv(**inputs)
    inputs["vectors"].mul_(2.0)
    changed = ops.gssc_conv(**inputs)
    assert not torch.allclose(before, changed)
    fresh = {name: value.clone() for name, value in inputs.items()}
    torch.testing.assert_close(changed, ops.gssc_conv(**fresh))
    inputs["ptr"][1] = 1
    fresh = {name: value.clone() for name, value in inputs.items()}
    torch.testing.assert_close(ops.gssc_conv(**inputs), ops.gssc_conv(**fresh))


@pytest.mark.parametrize("sizes", [[3, 4], [4, 4], [40, 2, 9]], ids=["one bucket", "equal", "several buckets"])
def test_kept_for_layers_and_gone_with_the_tensor(sizes):
    inputs = conv_inputs(sizes, 3, 4)
    ptr, vectors = inputs["ptr"], inputs.pop("vectors")
    by_torch._KEPT.clear()
    kept, dtype = by_torch.eigenvectors_once(vectors, ptr, vectors.float(), None)
    assert dtype == torch.float64
    assert by_torch.eigenvectors_once(vectors, ptr)[0] is kept
    assert by_torch.eigenvectors_once(vectors, ptr, vectors.to(torch.complex128))[0] is not kept
    assert len(by_torch._KEPT) == 1
    leaf = inputs["x_o"].requires_grad_()
    ops.gssc_conv(vectors=vectors, **inputs).sum().backward()
    assert leaf.grad is not None
    del vectors
    assert len(by_torch._KEPT) == 0
    batches = [torch.randn(sum(sizes), 3) for _ in range(20)]
    for batch in batches:
        by_torch.eigenvectors_once(batch, ptr)
    assert len(by_torch._KEPT) <= by_torch.MOST_KEPT
