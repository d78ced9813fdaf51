"""The fused recurrence step equals torch.sparse: weighted graphs, hubs cut into pieces, any width, both dtypes."""

import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import grid, star, zero_mode_basis

from gssc.spectra import fused_product, sparse_operator
from gssc.spectra.chebyshev import ChebyshevBlock
from gssc.spectra.fused_product import RowPlan
from gssc.spectra.operators import build_operator
from gssc.spectra.sparse_operator import HAS_TRITON, Shifted, SparseOperator

pytestmark = pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.setattr(sparse_operator, "FUSED_ENTRIES", 0)
    monkeypatch.setattr(sparse_operator, "INTERPRETED", True)


def hubs(n, seed=0):
    """A weighted symmetric matrix of all row lengths: empty rows, a diagonal, two rows of about n/2 entries."""
    rng = np.random.default_rng(seed)
    a = sp.random_array((n, n), density=3.0 / n, rng=rng, format="lil")
    for hub in (1, n - 2):
        a[hub, rng.choice(n, n // 2, replace=False)] = rng.standard_normal(n // 2)
    a[0, :] = 0.0
    a[:, 0] = 0.0
    a = sp.csr_array(a)
    return sp.csr_array((a + a.T + sp.diags_array(rng.standard_normal(n))).tocsr())


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("width", [1, 3, 8, 33])
def test_equals_torch_sparse(monkeypatch, dtype, width):
    monkeypatch.setattr(fused_product, "PIECE", 40)
    matrix = hubs(150)
    operator = SparseOperator.from_scipy(matrix, DEVICE)
    assert operator.plan.long.numel() == 2
    assert operator.plan.begins.numel() >= 4
    shifted = Shifted(operator, 0.3, 1.7, dtype)
    assert shifted.fused
    rng = np.random.default_rng(1)
    x, z = (torch.as_tensor(rng.standard_normal((150, width)), dtype=dtype, device=DEVICE) for _ in range(2))
    dense = torch.as_tensor((matrix.toarray() - 0.3 * np.eye(150)) / 1.7, device=DEVICE)
    limit = {"rtol": 0.0, "atol": 1e-13 if dtype == torch.float64 else 5e-5}
    torch.testing.assert_close((shifted @ x).double(), dense @ x.double(), **limit)
    want = 2.0 * (dense @ x.double()) - z.double()
    got = shifted.step(x, z, 2.0, -1.0)
    assert got is z
    torch.testing.assert_close(got.double(), want, **limit)
    # Columns apart: a view is written in place as well.
    wide = torch.zeros(150, 2 * width, dtype=dtype, device=DEVICE)
    shifted.step(x, wide[:, ::2], 1.0, 1.0)
    torch.testing.assert_close(wide[:, ::2].double(), dense @ x.double(), **limit)
    assert not wide[:, 1::2].any()


def test_every_row_once_and_every_entry_of_long_rows_once(monkeypatch):
    monkeypatch.setattr(fused_product, "PIECE", 40)
    operator = SparseOperator.from_scipy(hubs(150, 2))
    plan = RowPlan.of(operator.crow)
    assert sorted([*plan.short.tolist(), *plan.long.tolist()]) == list(range(150))
    length = operator.crow.diff()[plan.short.long()] - 1
    assert length.max() <= fused_product.LONG_ROW
    assert (((length + 3) // 4).diff() <= 0).all()
    for number, row in enumerate(plan.long.tolist()):
        pieces = range(int(plan.first[number]), int(plan.first[number + 1]))
        entries = [at for i in pieces for at in range(int(plan.begins[i]), int(plan.ends[i]))]
        assert entries == list(range(int(operator.crow[row]) + 1, int(operator.crow[row + 1])))
        assert len(entries) > fused_product.LONG_ROW


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("graph", [grid(7, 8), star(90)], ids=["grid", "star"])
def test_filter(monkeypatch, graph, single):
    matrix = build_operator(graph, "sym")
    known = torch.from_numpy(zero_mode_basis(graph, "sym"))
    x = torch.as_tensor(np.random.default_rng(0).standard_normal((matrix.shape[0], 8)), device=DEVICE)
    found = []
    for least in (0, 10**9):
        monkeypatch.setattr(sparse_operator, "FUSED_ENTRIES", least)
        block = ChebyshevBlock(SparseOperator.from_scipy(matrix, DEVICE), 2.0, known)
        assert block.matrix.fused == (least == 0)
        found.append(block.filtered(x, 7, 0.4, single, ((block.zero_modes, 3),)))
    torch.testing.assert_close(*found, rtol=0, atol=(1e-4 if single else 1e-11) * float(found[1].abs().max()))


# Compiled for a GPU that need not be there; the interpreter, which the other tests may use, must be off.
COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from gssc.spectra import product_kernels as kernels

fixed = {"groups": 1, "ALIGN": 8, "BLOCK": 8, "ROWS": 64, "SLOTS": 64, "ADDS": True}
types = {"count": "i32", "rows": "*i32", "crow": "*i32", "col": "*i32"}
types |= dict.fromkeys(("begins", "ends", "first"), "*i64")
for number in ("fp64", "fp32"):
    for kernel in (kernels.short_rows, kernels.long_parts, kernels.long_rows):
        names = kernel.arg_names
        signature = {name: "constexpr" if name in fixed else types.get(name, "*" + number) for name in names}
        attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name][0] == "*"}
        constants = {(i,): fixed[name] for i, name in enumerate(names) if name in fixed}
        source = ASTSource(kernel, signature, constexprs=constants, attrs=attributes)
        built = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        ptx = built.asm["ptx"]
        print(kernel.__name__, number, len(built.asm["cubin"]) > 0, ".v2.b64" in ptx, ".v4.b32" in ptx)
"""


def test_compiles_for_a_gpu_and_gathers_whole_vectors():
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = {tuple(line.split()[:2]): line.split()[2:] for line in done.stdout.splitlines()}
    assert len(lines) == 6
    assert all(found[0] == "True" for found in lines.values())
    for name in ("short_rows", "long_parts"):
        assert lines[name, "fp64"][1] == "True"
        assert lines[name, "fp32"][2] == "True"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.usefixtures("fused")
def test_same_bytes_on_a_gpu():
    operator = SparseOperator.from_scipy(hubs(3000), "cuda")
    x = torch.randn(3000, 8, dtype=torch.float64, device="cuda")
    assert len({(Shifted(operator) @ x).cpu().numpy().tobytes() for _ in range(5)}) == 1


def test_small_matrices_and_the_host_use_torch_sparse():
    assert not SparseOperator.from_scipy(hubs(150)).fused()
