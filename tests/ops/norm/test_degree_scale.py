"""The kernels against PyTorch; on the CPU through Triton's interpreter, on a GPU where there is one."""

from functools import partial

import pytest
import torch

from gssc import ops
from gssc.ops.norm import degree as triton
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAIVE, TRITON = (partial(ops.degree_scale, backend=backend) for backend in ("naive", "triton"))


def make(rows, channels, dtype=torch.float32):
    x = torch.randn(rows, channels, dtype=dtype, device=DEVICE)
    return {
        "x": x,
        "scale": torch.randn(channels, device=DEVICE),
        "log_scale": torch.randn(channels, device=DEVICE),
    }, torch.arange(rows, device=DEVICE) % 5


@pytest.mark.parametrize("held", [2048, 0], ids=["held", "in blocks"])
@pytest.mark.parametrize(("rows", "channels"), [(1, 1), (70, 5), (130, 65)])
def test_matches_naive(rows, channels, held, monkeypatch):
    monkeypatch.setattr(triton, "HELD", held)
    inputs, degree = make(rows, channels)
    for kind in (degree, degree.float()):
        assert_matches_reference(partial(TRITON, degree=kind), partial(NAIVE, degree=kind), inputs, tolerance=1e-5)


def test_no_rows_and_half_precision():
    inputs, degree = make(0, 3)
    assert TRITON(**inputs, degree=degree).shape == (0, 3)
    inputs, degree = make(9, 3, torch.bfloat16)
    wide = {name: value.float() for name, value in inputs.items()}
    out = TRITON(**inputs, degree=degree)
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), NAIVE(**wide, degree=degree), tolerance=1e-2)


def test_differentiable_twice():
    inputs, degree = make(6, 3)
    found = []
    for function in (TRITON, NAIVE):
        leaves = [value.clone().requires_grad_() for value in inputs.values()]
        first = torch.autograd.grad(function(*leaves, degree).pow(3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


def test_opcheck():
    inputs, degree = make(6, 3)
    leaves = [value.requires_grad_() for value in inputs.values()]
    torch.library.opcheck(triton.degree_scale.library, (*leaves, degree.float()))


def test_bad_input():
    inputs, degree = make(6, 3)
    with pytest.raises(ValueError, match=r"degree: expected shape \[6\], got \[5\]"):
        ops.degree_scale(**inputs, degree=degree[1:], backend="torch")
    with pytest.raises(ValueError, match=r"scale: expected shape \[3\], got \[1\]"):
        ops.degree_scale(**{**inputs, "scale": torch.ones(1)}, degree=degree, backend="torch")
