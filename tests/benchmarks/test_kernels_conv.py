import pytest
import torch

from benchmarks import kernels, kernels_conv
from benchmarks.harness import Timing
from benchmarks.kernels_conv import Result, Workload, error, gradients, molecules
from gssc import ops

pytest.importorskip("triton")
ONE, MANY = Workload("one", (90,), 5, 8), Workload("many", (12, 30), 5, 8, shared=True)


@pytest.mark.parametrize("work", [ONE, MANY], ids=lambda work: work.name)
def test_right_variants_pass_the_gate_and_wrong_ones_do_not(work):
    for _, kind, _, function, dtype in kernels_conv.variants(work):
        limit = kernels_conv.LIMITS[kind]
        assert error(function, work.inputs(dtype)) <= limit
        assert error(lambda f=function, **i: f(**{**i, "x_o": 1.1 * i["x_o"]}), work.inputs(dtype)) > limit
        torch.set_float32_matmul_precision("highest")


def test_floor_is_what_the_equations_need():
    nodes, k, c = 90, 5, 8
    forward, backward = 4 * nodes * (3 * c + 2 * k), 4 * nodes * (5 * c + 2 * k)
    per_graph = 4 * (6 * k * c + 2 * k * c)
    assert ONE.floor_bytes == forward + backward + per_graph


def test_rivals_give_finite_gradients():
    """Softmax attention is flash attention on a GPU only."""
    for name, step in kernels_conv.rivals(ONE):
        if "flash" not in name or torch.cuda.is_available():
            found = step()
            values = found.values() if isinstance(found, dict) else found
            assert all(torch.isfinite(value).all() for value in values if value is not None)


def test_explicit_z_is_the_convolution():
    base = ONE.inputs()
    inputs = {name: base[name] for name in ("x_o", "x_s", "vectors")}
    inputs |= {"phi": torch.randn_like(base["gains"]), "weights": torch.randn(4, 8, 8, device=base["x_o"].device)}
    kernels_conv._check_explicit_z(inputs, nodes=90)


def test_sizes_of_molecules():
    sizes = molecules(1000)
    assert min(sizes) >= 10
    assert max(sizes) <= 40
    assert 22 < sum(sizes) / 1000 < 24


def test_gradients_are_named():
    found = gradients(ops.gssc_conv, ONE.inputs(), torch.ones_like(ONE.inputs()["x_o"]))
    assert list(found) == ["output", "x_o", "x_s", "gains", "self_gains"]


def test_rows_say_what_was_measured():
    timing = Timing(1.0, 2.0, 3.0, 100.0, "graph replay")
    fused = Result("one", "fused", timing, 1e-7, 1.6)
    eager = Result("one", "eager", Timing(4.0, 8.0, 9.0, 100.0, "launched"), 1e-7, 1.6)
    wrong = Result("one", "tf32", None, 0.5, 1.6, "wrong: error 5e-01")
    rows = [kernels.row(result, fused, 4e12) for result in (fused, eager, wrong)]
    assert rows[0]["p50_ms"] == "2.0000"
    assert "1.25 times the floor" in rows[0]["note"]
    assert "baseline" not in rows[0]
    assert rows[1]["ratio"] == "4.00"
    assert "p50_ms" not in rows[2]
    assert rows[2]["note"].startswith("wrong")
