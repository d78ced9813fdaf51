"""The kernels against PyTorch; on the CPU through Triton's interpreter, on a GPU where there is one."""

import pytest
import torch

from gssc import ops
from gssc.nn import DeepSetPhi
from gssc.ops.phi import naive, triton, unit_weights
from gssc.testing import assert_close

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make(graphs, frequencies, channels=16, blocks=1, dtype=torch.float32):
    """Eigenvalues of both signs; masks with holes, and every third graph without any; weights that are not ones."""
    values = torch.randn(graphs, frequencies, device=DEVICE, dtype=dtype)
    mask = torch.rand(graphs, frequencies, device=DEVICE) < 0.7
    mask[1::3] = False
    values[::2, 0] = 0.0
    phi = DeepSetPhi(channels, blocks).to(DEVICE, dtype)
    with torch.no_grad():
        for parameter in phi.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return values, mask, [parameter.detach() for parameter in phi.parameters()]


def run(values, mask, weights, backend):
    """Φ and the gradients of all weights."""
    leaves = [weight.clone().requires_grad_() for weight in weights]
    out = (naive if backend == "naive" else triton).deep_set(values, mask, leaves)
    along = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype, device=DEVICE).view_as(out)
    return [out.detach(), *torch.autograd.grad((out * along).sum(), leaves)]


def assert_same(actual, expected, tolerance=2e-5):
    for place, (own, other) in enumerate(zip(actual, expected, strict=True)):
        assert_close(own.double(), other.double(), str(place), tolerance)


def wide(values, mask, weights):
    return values.double(), mask, [weight.double() for weight in weights]


@pytest.mark.parametrize(
    ("graphs", "frequencies", "channels", "blocks"),
    [
        (1, 1, 16, 1),
        (3, 5, 16, 3),
        (2, 17, 32, 1),
        (1, 33, 16, 2),
        (2, 64, 64, 1),
        (2, 5, 16, 0),
        (3, 5, 24, 2),
        (2, 7, 5, 1),
        (1, 17, 96, 1),
    ],
)
def test_matches_naive_in_float64(graphs, frequencies, channels, blocks):
    inputs = make(graphs, frequencies, channels, blocks)
    assert_same(run(*inputs, "triton"), run(*wide(*inputs), "naive"))


def test_naive_is_the_module(float64):
    values, mask, weights = make(4, 6, 8, 2, torch.float64)
    phi = DeepSetPhi(8, 2).to(DEVICE)
    phi.load_state_dict(dict(zip(phi.state_dict(), weights, strict=True)))
    assert torch.equal(naive.deep_set(values, mask, weights), phi(values, mask))


@pytest.mark.parametrize("programs", [1, 3])
def test_several_graphs_per_program(programs, monkeypatch):
    """Five graphs by fewer programs: gradients add up in memory."""
    monkeypatch.setattr(triton, "PROGRAMS", 1)
    monkeypatch.setattr(triton, "multiprocessors", lambda device: programs)
    inputs = make(5, 3)
    assert_same(run(*inputs, "triton"), run(*wide(*inputs), "naive"))


def test_no_graphs():
    out, *gradients = run(*make(0, 5), "triton")
    assert out.shape == (0, 5, 16)
    assert not any(gradient.any() for gradient in gradients)


def test_masked_places_and_what_they_hold_do_not_matter():
    values, mask, weights = make(2, 6)
    first = run(values, mask, weights, "triton")
    second = run(values.masked_fill(~mask, float("nan")), mask, weights, "triton")
    assert not first[0][~mask].any()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_results_repeat_bit_by_bit(monkeypatch):
    monkeypatch.setattr(triton, "multiprocessors", lambda device: 1)
    inputs = make(3, 4)
    first, second = (run(*inputs, "triton") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_strides_do_not_matter():
    values, mask, weights = make(3, 5)
    turned = [weight.t().contiguous().t() for weight in weights]
    other = run(values.t().contiguous().t(), mask.t().contiguous().t(), turned, "triton")
    assert_same(other, run(values, mask, weights, "triton"), 1e-6)


def test_nothing_is_kept_without_gradients():
    values, mask, weights = make(2, 3)
    flat = torch.cat([weight.reshape(-1) for weight in weights])
    kept, plain = (triton.deep_set_forward(values, mask, flat, 16, 1, keep) for keep in (True, False))
    assert torch.equal(kept[0], plain[0])
    assert (kept[1].shape[0], plain[1].shape[0]) == (1, 0)


def test_frozen_weights():
    values, mask, weights = make(2, 3)
    leaves = [weight.clone().requires_grad_(place == 5) for place, weight in enumerate(weights)]
    triton.deep_set(values, mask, leaves).sum().backward()
    assert [leaf.grad is not None for leaf in leaves] == [place == 5 for place in range(len(leaves))]


def test_gradients_are_parts_of_one_tensor():
    """A copy of each would be a launch of each."""
    values, mask, weights = make(2, 3)
    leaves = [weight.requires_grad_() for weight in weights]
    triton.deep_set(values, mask, leaves).sum().backward()
    assert len({leaf.grad.untyped_storage().data_ptr() for leaf in leaves}) == 1


def test_differentiable_twice():
    values, mask, weights = make(2, 3)
    found = []
    for backend, kind in (("triton", torch.float32), ("naive", torch.float64)):
        leaves = [weight.to(kind).requires_grad_() for weight in weights]
        out = (naive if backend == "naive" else triton).deep_set(values.to(kind), mask, leaves)
        first = torch.autograd.grad(out.pow(2).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    assert_same(*found, 1e-3)


def test_autocast_does_not_make_it_coarser():
    inputs = make(2, 3)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        actual = run(*inputs, "triton")
    assert all(torch.equal(a, b) for a, b in zip(actual, run(*inputs, "triton"), strict=True))


def test_opcheck():
    values, mask, weights = make(1, 4)
    flat = torch.cat([weight.reshape(-1) for weight in weights]).requires_grad_()
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(triton.deep_set_forward.library, (values, mask, flat, 16, 1, True), test_utils=tests)
    grad, (_, states) = torch.randn(1, 4, 16, device=DEVICE), triton.deep_set_forward(values, mask, flat, 16, 1, True)
    inputs = (grad, values, mask, flat.detach(), states.detach())
    torch.library.opcheck(triton.deep_set_backward.library, inputs, test_utils=tests)


def test_where_it_fits():
    values, _, _ = make(2, 3)
    assert triton.fits(values, 16)
    assert not triton.fits(values.double(), 16)
    assert not triton.fits(values[:, :0], 16)
    assert not triton.fits(torch.zeros(2, 65, device=DEVICE), 16)
    assert not triton.fits(values.clone().requires_grad_(), 16)
    assert triton.fits(values, 96)
    assert not triton.fits(values, 129)


def test_modules_that_must_be_called():
    def parts(phi):
        return phi.embed, list(phi.pool), list(phi.update)

    phi = DeepSetPhi(16, 2)
    weights = unit_weights(*parts(phi))
    assert all(a is b for a, b in zip(weights, phi.parameters(), strict=True))
    assert naive.blocks_of(weights) == 2
    for change in (
        lambda phi: phi.pool[1][0].register_forward_hook(lambda *_: None),
        lambda phi: phi.update[0].__setitem__(2, torch.nn.ReLU()),
        lambda phi: phi.update[0].__setitem__(1, torch.nn.LayerNorm(16, eps=1e-3)),
        lambda phi: phi.embed.register_forward_pre_hook(lambda *_: None),
        lambda phi: phi.pool.append(torch.nn.Identity()),
    ):
        other = DeepSetPhi(16, 2)
        change(other)
        assert unit_weights(*parts(other)) is None


def test_bad_input():
    values, mask, _ = make(2, 3)
    phi = DeepSetPhi(16, 1).to(DEVICE)
    parts = (phi.embed, list(phi.pool), list(phi.update))
    with pytest.raises(ValueError, match="eigvals: expected what the kernels take"):
        ops.deep_set(values.clone().requires_grad_(), mask, *parts, backend="triton")
    with pytest.raises(ValueError, match=r"eigmask: expected shape \[2, 3\], got \[2, 2\]"):
        ops.deep_set(values, mask[:, 1:], *parts)
