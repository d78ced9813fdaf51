from functools import partial

import pytest
import torch
from batches import SIZES, conv_inputs

from gssc import ops
from gssc.ops.conv import torch as by_torch
from gssc.ops.graph_sums import torch as state
from gssc.testing import assert_matches_reference

NAIVE = partial(ops.gssc_conv, backend="naive")
TORCH = partial(ops.gssc_conv, backend="torch")


@pytest.mark.usefixtures("float64", "poisoned")
@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_matches_naive(sizes, shared):
    assert_matches_reference(TORCH, NAIVE, conv_inputs(sizes, 7, 5, shared), tolerance=1e-11)


@pytest.mark.usefixtures("float64", "poisoned")
@pytest.mark.parametrize("left_out", [("x_o", "gains"), ("x_s", "self_gains")])
def test_one_term_alone_matches_naive(left_out):
    inputs = {name: value for name, value in conv_inputs([7, 0, 1, 9], 3, 5).items() if name not in left_out}
    missing = dict.fromkeys(left_out)
    assert_matches_reference(partial(TORCH, **missing), partial(NAIVE, **missing), inputs, tolerance=1e-11)


@pytest.mark.usefixtures("float64", "poisoned")
@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("left_out", [(), ("x_o", "gains"), ("x_s", "self_gains")], ids=["both", "self", "global"])
@pytest.mark.parametrize("sizes", [[7, 0, 1, 9], [4, 4], [50, 3, 17, 2], [20, 17, 23]], ids=str)
def test_backward_op_matches_naive(sizes, left_out, shared):
    """Without a gradient of P: the way of every model."""
    inputs = {name: value for name, value in conv_inputs(sizes, 3, 5, shared).items() if name not in left_out}
    inputs |= dict.fromkeys(left_out)
    leaves = [name for name in ("x_o", "x_s", "gains", "self_gains") if inputs[name] is not None]
    results = {}
    for backend in (TORCH, NAIVE):
        own = inputs | {name: inputs[name].detach().clone().requires_grad_() for name in leaves}
        own["vectors"] = inputs["vectors"].detach()
        out = backend(**own)
        torch.manual_seed(1)
        out.backward(torch.randn_like(out))
        results[backend] = [own[name].grad for name in leaves]
    torch.testing.assert_close(results[TORCH], results[NAIVE], rtol=1e-11, atol=1e-11)


def test_matches_naive_in_float32():
    assert_matches_reference(TORCH, NAIVE, conv_inputs([40, 3, 0, 17], 7, 5), tolerance=1e-5)


@pytest.mark.parametrize(("frequencies", "channels"), [(1, 1), (0, 3), (3, 0), (33, 2)])
@pytest.mark.parametrize("sizes", [[3, 1], [40, 0, 2]], ids=["one bucket", "several"])
def test_odd_widths(float64, frequencies, channels, sizes):
    assert_matches_reference(TORCH, NAIVE, conv_inputs(sizes, frequencies, channels), tolerance=1e-11)
    inputs = conv_inputs(sizes, frequencies, channels)
    vectors = inputs.pop("vectors")
    fixed = [partial(function, vectors=vectors) for function in (TORCH, NAIVE)]
    assert_matches_reference(*fixed, inputs, tolerance=1e-11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    exact = conv_inputs([300, 5], 7, 4)
    half = {name: value.to(dtype) if value.is_floating_point() else value for name, value in exact.items()}
    out = TORCH(**half)
    assert out.dtype == dtype
    rounded = {name: value.double() if value.is_floating_point() else value for name, value in half.items()}
    reference = NAIVE(**rounded)
    error = (out.double() - reference).norm() / reference.norm()
    assert error < (4e-3 if dtype == torch.bfloat16 else 5e-4)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
@pytest.mark.parametrize("sizes", [[2, 0, 3], [3]])
def test_differentiable_twice_in_every_input(sizes, shared):
    *tensors, ptr = (
        v.requires_grad_() if v.is_floating_point() else v for v in conv_inputs(sizes, 2, 2, shared).values()
    )
    assert torch.autograd.gradcheck(lambda *t: ops.gssc_conv(*t, ptr), tensors)
    assert torch.autograd.gradgradcheck(lambda *t: ops.gssc_conv(*t, ptr), tensors)
    x, p, gain = tensors[0], tensors[2], tensors[3]
    assert torch.autograd.gradgradcheck(lambda x, p, a: ops.gssc_conv(x, None, p, a, None, ptr), (x, p, gain))
    assert torch.autograd.gradgradcheck(lambda x, p, a: ops.gssc_conv(None, x, p, None, a, ptr), (x, p, gain))


def test_first_derivatives_have_none_of_their_own():
    inputs = conv_inputs([4, 6], 3, 5)
    leaves = [value.requires_grad_() for name, value in inputs.items() if name != "ptr"]
    gradients = torch.autograd.grad(TORCH(**inputs).square().sum(), leaves)
    assert not any(gradient.requires_grad for gradient in gradients)


@pytest.mark.parametrize("shared", [False, True], ids=["channel", "shared"])
def test_opcheck(shared):
    inputs = conv_inputs([2, 0, 3], 2, 4, shared)
    tensors = tuple(v.requires_grad_() if v.is_floating_point() else v for v in inputs.values())
    bias = torch.randn(4, requires_grad=True) if shared else None
    torch.library.opcheck(torch.ops.gssc.conv.default, (*tensors[:5], bias, tensors[5]))


def test_no_intermediate_of_size_nodes_by_frequencies_by_channels():
    """The largest tensor that the convolution makes, forward and backward, is of order N(K + C) + GKC."""
    inputs = conv_inputs([500] * 8, 32, 64)
    leaves = [v.requires_grad_() for v in inputs.values() if v.is_floating_point()]
    largest = 0

    # Ops of the package are opaque to a dispatch mode: look inside by calling their implementations.
    inside = {
        torch.ops.gssc.conv.default: by_torch.conv.function,
        torch.ops.gssc.to_state.default: state.to_state.function,
        torch.ops.gssc.from_state.default: state.from_state.function,
    }

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            if func in inside:
                with self:
                    return inside[func](*args)
            out = func(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(out):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.numel())
            return out

    with Watch():
        out = ops.gssc_conv(**inputs)
        torch.autograd.grad(out.sum(), leaves)
    nodes, graphs = 4000, 8
    assert nodes * 64 <= largest <= max(nodes * (32 + 64), graphs * 32 * 64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_o": torch.zeros(4, 3)}, r"x_o: expected shape \[5, \*\], got \[4, 3\]"),
        ({"x_s": torch.zeros(5, 4)}, r"x_s: expected shape \[5, 3\], got \[5, 4\]"),
        ({"vectors": torch.zeros(5)}, r"vectors: expected shape \[\*, \*\], got \[5\]"),
        ({"gains": torch.zeros(2, 2, 2)}, r"gains: expected shape \[2, 2, 3\], got \[2, 2, 2\]"),
        ({"self_gains": torch.zeros(1, 2, 3)}, r"self_gains: expected shape \[2, 2, 3\], got \[1, 2, 3\]"),
        ({"ptr": torch.tensor([0, 2, 4])}, "ptr: expected non-decreasing numbers from 0 to N = 5"),
        ({"ptr": torch.tensor([[0, 2, 5]])}, r"ptr: expected shape \[\*\], got \[1, 3\]"),
        ({"gains": None}, "gains: expected given exactly when x_o is"),
        ({"x_o": None, "gains": None, "x_s": None, "self_gains": None}, "x_o: expected a tensor"),
        ({"backend": "toch"}, r"backend: expected one of .*did you mean 'torch'"),
    ],
)
def test_bad_input(change, message):
    inputs = conv_inputs([2, 3], 2, 3)
    with pytest.raises(ValueError, match=message):
        ops.gssc_conv(**{**inputs, **change})
