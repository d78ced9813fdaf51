"""The kernels against the references; on the CPU through Triton's interpreter, on a GPU where there is one."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from batches import SIZES, conv_inputs

from gssc import ops
from gssc.ops.conv import triton as by_triton
from gssc.testing import assert_close, assert_matches_reference

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAIVE = partial(ops.gssc_conv, backend="naive")
TORCH = partial(ops.gssc_conv, backend="torch")
TRITON = partial(ops.gssc_conv, backend="triton")
# A GPU compiles every shape anew, seconds each: there, of variants that differ in little, one is enough.
interpreted = pytest.mark.skipif(DEVICE == "cuda", reason="for the interpreter")
# Graphs of one tile and of several, in one batch and alone; blocks that end inside a tile.
RAGGED = [17, 0, 1, 33, 3, 70, 0]


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 32 nodes, so that small graphs have several."""
    for name in ("FORWARD", "BACKWARD"):
        tuning = replace(getattr(by_triton, name), rows=16, tiles=1000, least=32, once=0)
        monkeypatch.setattr(by_triton, name, tuning)


def make(sizes, frequencies, channels, shared=False):
    inputs = conv_inputs(sizes, frequencies, channels, shared)
    inputs["vectors"] = inputs["vectors"] / max(max(sizes, default=1), 1) ** 0.5
    return {name: value.to(DEVICE) for name, value in inputs.items()}


def check(reference, inputs, tolerance=1e-5):
    """Output and every gradient. P is held fixed, as in training: its gradient is not the kernels'."""
    vectors = inputs.pop("vectors")
    functions = (partial(function, vectors=vectors) for function in (TRITON, reference))
    assert_matches_reference(*functions, inputs, tolerance=tolerance)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_matches_naive(sizes):
    check(NAIVE, make(sizes, 7, 5))


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("sizes", [RAGGED, pytest.param([70], marks=interpreted)], ids=str)
def test_graphs_of_several_tiles(small_tiles, sizes, shared):
    check(NAIVE, make(sizes, 7, 5, shared))


@pytest.mark.parametrize(
    ("frequencies", "channels", "sizes"),
    [
        pytest.param(1, 1, [17, 40], marks=interpreted),
        (33, 64, [17, 40]),
        pytest.param(7, 140, [40], marks=interpreted),
        pytest.param(65, 5, [33], marks=interpreted),
        pytest.param(256, 17, [3, 1], marks=interpreted),
        (0, 3, [4]),
        (3, 0, [4]),
    ],
)
def test_odd_widths(small_tiles, frequencies, channels, sizes):
    check(TORCH, make(sizes, frequencies, channels, shared=frequencies % 2 == 0))


@pytest.mark.parametrize("tiles", [pytest.param("one", marks=interpreted), "several"])
@pytest.mark.parametrize("left_out", [("x_o", "gains"), ("x_s", "self_gains")])
def test_one_term_alone(request, left_out, tiles):
    if tiles == "several":
        request.getfixturevalue("small_tiles")
    for shared in (False, True):
        inputs = {name: value for name, value in make([7, 0, 40], 3, 5, shared).items() if name not in left_out}
        fixed = {**dict.fromkeys(left_out), "vectors": inputs.pop("vectors")}
        assert_matches_reference(partial(TRITON, **fixed), partial(TORCH, **fixed), inputs, tolerance=1e-5)


def test_one_gain_shared_and_one_per_channel(small_tiles):
    inputs = make([40, 9], 5, 6)
    for name in ("gains", "self_gains"):
        check(TORCH, {**inputs, name: inputs[name][:, :, :1]})


def test_gradient_of_the_vectors_is_torch():
    assert_matches_reference(TRITON, NAIVE, make(RAGGED, 7, 5), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(small_tiles, dtype):
    half = {
        name: value.to(dtype) if value.is_floating_point() else value for name, value in make([90, 5], 7, 4).items()
    }
    found, expected = {}, {}
    for out, function, convert in ((found, TRITON, None), (expected, NAIVE, torch.float64)):
        fresh = {
            name: value.detach().to(convert or value.dtype).requires_grad_() if value.is_floating_point() else value
            for name, value in half.items()
            if name != "vectors"
        }
        result = function(**fresh, vectors=half["vectors"].to(convert or dtype))
        leaves = [name for name, value in fresh.items() if value.requires_grad]
        gradients = torch.autograd.grad(result.square().sum(), [fresh[name] for name in leaves])
        out |= {"output": result, **dict(zip(leaves, gradients, strict=True))}
    for name, value in found.items():
        assert value.dtype == dtype
        error = (value.double() - expected[name]).norm() / expected[name].norm()
        assert error < (8e-3 if dtype == torch.bfloat16 else 2e-3), name


def test_dtypes_may_differ():
    """Under autocast features are half precision and positions are not."""
    inputs = make([20, 5], 7, 6)
    out = TRITON(**{**inputs, "x_o": inputs["x_o"].bfloat16(), "x_s": inputs["x_s"].bfloat16()})
    assert out.dtype == torch.bfloat16
    assert_close(out.float(), TORCH(**inputs), tolerance=2e-2)


def test_results_repeat_bit_by_bit(small_tiles):
    inputs = make(RAGGED, 7, 5)
    assert torch.equal(TRITON(**inputs), TRITON(**inputs))


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=interpreted)], ids=["channel", "shared"])
def test_differentiable_twice(shared):
    """The gradient of a gradient, against the same in PyTorch's products."""
    inputs = make([4, 0, 5], 3, 2, shared)
    found = []
    for function in (TRITON, TORCH):
        fresh = {
            name: value.detach().clone().requires_grad_(value.is_floating_point()) for name, value in inputs.items()
        }
        leaves = [value for value in fresh.values() if value.requires_grad]
        first = torch.autograd.grad(function(**fresh).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-4)


@pytest.mark.parametrize("need_vectors", [False, True])
def test_opcheck(need_vectors):
    inputs = make([2, 0, 3], 2, 4, shared=need_vectors)
    tensors = tuple(
        v.requires_grad_(v.is_floating_point() and (name != "vectors" or need_vectors)) for name, v in inputs.items()
    )
    bias = torch.randn(4, device=DEVICE, requires_grad=True) if need_vectors else None
    torch.library.opcheck(torch.ops.gssc.conv_triton.default, (*tensors[:5], bias, tensors[5]))


@pytest.mark.filterwarnings("ignore")
def test_compiles_whole():
    torch._dynamo.reset()
    function = torch.compile(TRITON, fullgraph=True, dynamic=True, backend="aot_eager")
    for sizes in ([9, 3], [20, 4, 7]):
        inputs = make(sizes, 3, 4)
        assert_close(function(**inputs), TORCH(**inputs))


def test_bad_input(monkeypatch):
    inputs = make([2, 3], 2, 3)
    with pytest.raises(ValueError, match="x_o: expected float32, bfloat16 or float16 for backend='triton'"):
        TRITON(**{**inputs, "x_o": inputs["x_o"].double()})
    with pytest.raises(ValueError, match="vectors: expected at most 256 frequencies"):
        TRITON(**make([2], 257, 3))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="x_o: expected a tensor on a GPU for backend='triton'"):
        TRITON(**{name: value.cpu() for name, value in inputs.items()})


def test_auto_on_the_cpu_is_torch():
    inputs = {name: value.cpu() for name, value in make([5, 7], 3, 4).items()}
    assert torch.equal(ops.gssc_conv(**inputs), TORCH(**inputs))
