"""The kernel against PyTorch; on the CPU through Triton's interpreter, on a GPU where there is one."""

import pytest
import torch

from gssc import ops
from gssc.ops.norm import naive
from gssc.ops.norm import rowwise as triton
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seed():
    return ops.new_seeds(1, DEVICE)[0]


@pytest.mark.parametrize(("rows", "channels"), [(1, 1), (33, 5), (70, 130)])
@pytest.mark.parametrize("p", [0.0, 0.3])
def test_matches_naive(rows, channels, p):
    own, x = seed(), torch.randn(rows, channels, device=DEVICE)
    fused, reference = (lambda x, b=backend: ops.relu_dropout(x, p, True, own, 4, b) for backend in ("triton", "naive"))
    assert_matches_reference(fused, reference, {"x": x}, tolerance=1e-6)


def test_no_rows_and_half_precision():
    assert ops.relu_dropout(torch.empty(0, 3, device=DEVICE), 0.5, True, seed(), backend="triton").shape == (0, 3)
    x, own = torch.randn(9, 3, device=DEVICE).bfloat16(), seed()
    out = ops.relu_dropout(x, 0.5, True, own, backend="triton")
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), ops.relu_dropout(x.float(), 0.5, True, own, backend="naive"), tolerance=1e-2)


def test_what_is_no_number_stays_so():
    x = torch.tensor([[float("nan"), -1.0, 2.0]], device=DEVICE)
    assert ops.relu_dropout(x, 0.0, backend="triton").isnan().tolist() == [[True, False, False]]


def test_bits_are_fair_and_differ_by_seed_site_row_and_channel():
    p, first, second = 0.3, seed(), seed()
    masks = [naive.kept(first, 0, 400, 64, p), naive.kept(first, 1, 400, 64, p), naive.kept(second, 0, 400, 64, p)]
    masks += [masks[0].roll(1, 0), masks[0].roll(1, 1)]
    deviation = (p * (1 - p) / masks[0].numel()) ** 0.5
    for mask in masks[:3]:
        assert abs(float(mask.double().mean()) - (1 - p)) < 5 * deviation
        assert abs(mask.double().mean(0) - (1 - p)).max() < 5 * deviation * 64**0.5
        assert abs(mask.double().mean(1) - (1 - p)).max() < 5 * deviation * 400**0.5
    both = (1 - p) ** 2
    for mask in masks[1:]:
        overlap = float((masks[0] & mask).double().mean())
        assert abs(overlap - both) < 6 * (both * (1 - both) / mask.numel()) ** 0.5


def test_the_mean_stays():
    x = torch.ones(400, 64, device=DEVICE)
    assert abs(float(ops.relu_dropout(x, 0.9, True, seed(), backend="triton").mean()) - 1) < 5 * 3 / x.numel() ** 0.5


def test_differentiable_twice():
    x, own, found = torch.randn(5, 3, device=DEVICE), seed(), []
    for backend in ("triton", "naive"):
        leaf = x.clone().requires_grad_()
        out = ops.relu_dropout(leaf, 0.5, True, own, 0, backend)
        (first,) = torch.autograd.grad(out.pow(3).sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    assert_close(*found, tolerance=1e-5)


def test_opcheck():
    x = torch.randn(5, 3, device=DEVICE, requires_grad=True)
    torch.library.opcheck(triton._relu_forward.library, (x, seed(), 0.5, 1))


def test_bad_input():
    x = torch.ones(3, 2, device=DEVICE)
    with pytest.raises(ValueError, match="seed: expected a seed from new_seeds"):
        ops.relu_dropout(x, 0.5, backend="triton")
    with pytest.raises(ValueError, match=r"seed: expected shape \[4\], got \[2\]"):
        ops.relu_dropout(x, 0.5, True, torch.zeros(2, dtype=torch.int32, device=DEVICE), backend="triton")
    with pytest.raises(ValueError, match="backend: expected one of 'auto', 'naive', 'torch', 'triton', got 'eager'"):
        ops.relu_dropout(x, 0.0, backend="eager")
