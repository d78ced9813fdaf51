"""The kernels against PyTorch's batch_norm; on the CPU through Triton's interpreter, on a GPU where there is one."""

from typing import NamedTuple

import pytest
import torch

from gssc import ops
from gssc.ops.norm import triton as fused
from gssc.ops.norm.triton import norm_forward
from gssc.testing import assert_close

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("poisoned")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Parts(NamedTuple):
    """A branch with all that its norm holds."""

    rows: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor
    batches: torch.Tensor
    dropout: float = 0.0
    residual: bool = True


class Form(NamedTuple):
    """What all branches of a call have in common."""

    training: bool
    momentum: float | None = 0.1
    eps: float = 1e-5
    activation: bool = False
    site: int = 0


def residual_norm(parts, x, mask, *, form, seed=None, backend="triton"):
    settings = (form.eps, form.momentum, form.training)
    branches = [ops.Branch(p.rows, ops.NormState(*p[1:6], *settings), p.dropout, p.residual) for p in parts]
    more = {"training": form.training, "seed": seed, "site": form.site, "activation": form.activation}
    return ops.residual_norm(x, branches, mask, **more, backend=backend)


FORMS = {"one": (1, False), "two": (2, False), "activation": (1, True)}


def make(rows, channels, branches, dtype=torch.float64, dropout=0.0, residual=True, shift=2.0):
    def random(*shape):
        return torch.randn(*shape, dtype=dtype, device=DEVICE)

    wide = torch.promote_types(dtype, torch.float32)
    norms = []
    for number in range(branches):
        state = [random(channels).to(wide), random(channels).to(wide), random(channels).to(wide)]
        state += [torch.rand(channels, dtype=wide, device=DEVICE) + 0.5, torch.tensor(3, device=DEVICE)]
        h = random(rows, channels) * 3 + shift
        norms.append(Parts(h, *state, dropout / (number + 1), residual or number > 0))
    return norms, random(rows, channels), torch.arange(rows, device=DEVICE) % 3 != 1


def run(branches, x, mask, form, backend, seed=None):
    """Output, gradients of x, h, γ and β, and running statistics."""
    branches = [
        Parts(*(b.clone().requires_grad_(i < 3) if torch.is_tensor(b) else b for i, b in enumerate(branch)))
        for branch in branches
    ]
    leaf = None if x is None else x.clone().requires_grad_()
    out = residual_norm(branches, leaf, mask, seed=seed, form=form, backend=backend)
    leaves = [] if leaf is None else [leaf]
    leaves += [tensor for branch in branches for tensor in branch[:3]]
    weight = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype, device=DEVICE).view_as(out)
    gradients = torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True)
    return [out.detach(), *gradients, *(tensor.detach() for branch in branches for tensor in branch[3:6])]


def assert_same(actual, expected, tolerance):
    for place, (own, other) in enumerate(zip(actual, expected, strict=True)):
        assert (own is None) == (other is None)
        if own is not None:
            assert own.dtype == other.dtype, place
            assert_close(own.double(), other.double(), str(place), tolerance)


@pytest.mark.parametrize("held", [2048, 5], ids=["held", "in shares"])
@pytest.mark.parametrize(("training", "dropout"), [(True, 0.0), (True, 0.3), (False, 0.3)])
@pytest.mark.parametrize("kind", FORMS)
def test_matches_naive_in_float64(kind, dropout, training, held, monkeypatch):
    monkeypatch.setattr(fused, "HELD", held)
    branches, activation = FORMS[kind]
    inputs = make(70, 5, branches, dropout=dropout)
    form, seed = Form(training, activation=activation, site=3), ops.new_seeds(1, DEVICE)[0]
    assert_same(run(*inputs, form, "triton", seed), run(*inputs, form, "naive", seed), 1e-12)


@pytest.mark.parametrize("held", [2048, 0], ids=["held", "in shares"])
@pytest.mark.parametrize("kind", FORMS)
def test_no_mask_no_residual_and_a_mean_over_all_batches(kind, held, monkeypatch):
    monkeypatch.setattr(fused, "HELD", held)
    branches, activation = FORMS[kind]
    norms, x, _ = make(140, 3, branches, residual=False)
    for residual in (x, None):
        form = Form(True, momentum=None, eps=1e-3, activation=activation)
        assert_same(run(norms, residual, None, form, "triton"), run(norms, residual, None, form, "naive"), 1e-12)


@pytest.mark.parametrize("kind", ["two", "activation"])
def test_shares_of_several_blocks(kind, monkeypatch):
    """Shares of 111 rows, which is no multiple of a block, and chunks beyond what one step merges."""
    monkeypatch.setattr(fused, "HELD", 5)
    monkeypatch.setattr(fused, "MERGED", 2)
    for processors in (1, 40):
        monkeypatch.setattr(fused, "multiprocessors", lambda device, count=processors: count)
        inputs, form = make(222, 3, FORMS[kind][0]), Form(True, activation=FORMS[kind][1])
        assert_same(run(*inputs, form, "triton"), run(*inputs, form, "naive"), 1e-12)


@pytest.mark.parametrize("held", [2048, -1], ids=["held", "in shares"])
@pytest.mark.parametrize("real", [0, 1, 2])
@pytest.mark.parametrize("rows", [0, 5])
def test_few_rows(rows, real, held, monkeypatch):
    """With fewer than two real ones, the running statistics count and stay."""
    monkeypatch.setattr(fused, "HELD", held)
    norms, x, _ = make(rows, 5, 2)
    mask = torch.arange(rows, device=DEVICE) < real
    actual = run(norms, x, mask, Form(True), "triton")
    assert_same(actual, run(norms, x, mask, Form(True), "naive"), 1e-12)
    if min(rows, real) < 2:
        assert all(torch.equal(own, old) for own, old in zip(actual[-3:], norms[-1][3:6], strict=True))


@pytest.mark.parametrize("kind", FORMS)
def test_padding_is_invisible(kind):
    """Whatever stands in padding rows, and however many there are, not a bit changes."""
    branches, activation = FORMS[kind]
    norms, x, _ = make(20, 6, branches, torch.float32)
    form, results = Form(True, activation=activation), []
    for value, rows in ((0.0, 20), (float("nan"), 20), (1e30, 24)):
        mask = torch.arange(rows, device=DEVICE) < 17

        def padded(tensor, value=value, rows=rows):
            return torch.cat([tensor[:17], tensor.new_full((rows - 17, 6), value)])

        own = [branch._replace(rows=padded(branch.rows)) for branch in norms]
        out, *rest = run(own, None if activation else padded(x), mask, form, "triton")
        assert not out[17:].any()
        # The weights of the loss depend on the number of rows; the output and the statistics do not.
        results.append([out[:17], *rest[-3 * branches :]])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_gradients_of_padding_are_zero():
    norms, x, mask = make(20, 6, 2)
    _, of_x, first, _, _, second, *_ = run(norms, x, mask, Form(True), "triton")
    for gradient in (of_x, first, second):
        assert gradient[mask].any()
        assert not gradient[~mask].any()


@pytest.mark.parametrize("held", [2048, 5], ids=["held", "in shares"])
def test_a_large_mean_costs_no_digits(held, monkeypatch):
    monkeypatch.setattr(fused, "HELD", held)
    norms, x, mask = make(90, 3, 2, torch.float32, shift=1e4)
    wide = [Parts(*(t.double() if torch.is_tensor(t) and t.is_floating_point() else t for t in b)) for b in norms]
    form = Form(True, momentum=1.0)
    assert_same(
        [t.double() for t in run(norms, x, mask, form, "triton")],
        [t.double() for t in run(wide, x.double(), mask, form, "naive")],
        1e-3,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    norms, x, mask = make(60, 4, 2, dtype)
    wide = [branch._replace(rows=branch.rows.float()) for branch in norms]
    actual = run(norms, x.float(), mask, Form(True), "triton")
    expected = run(wide, x.float(), mask, Form(True), "naive")
    assert actual[0].dtype == torch.float32  # that of the residual
    assert actual[2].dtype == dtype
    assert_close(actual[0], expected[0], tolerance=1e-5)
    assert_close(actual[2].float(), expected[2], tolerance=1e-2)


@pytest.mark.parametrize("held", [2048, 5], ids=["held", "in shares"])
def test_results_repeat_bit_by_bit(held, monkeypatch):
    monkeypatch.setattr(fused, "HELD", held)
    inputs, seed = make(70, 5, 2, torch.float32, dropout=0.5), ops.new_seeds(1, DEVICE)[0]
    first, second = (run(*inputs, Form(True), "triton", seed) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("kind", "training"), [("one", False), ("two", True), ("activation", True)])
def test_differentiable_twice(kind, training):
    branches, activation = FORMS[kind]
    norms, x, mask = make(7, 3, branches, dropout=0.5)
    seed, found = ops.new_seeds(1, DEVICE)[0], []
    for backend in ("triton", "naive"):
        own = [Parts(*(t.clone() if torch.is_tensor(t) else t for t in branch)) for branch in norms]
        leaves = [x.clone(), *(t for branch in own for t in branch[:3])]
        for leaf in leaves:
            leaf.requires_grad_()
        form = Form(training, activation=activation)
        out = residual_norm(own, leaves[0], mask, seed=seed, form=form, backend=backend)
        first = torch.autograd.grad(out.pow(3).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for actual, expected in zip(*found, strict=True):
        assert_close(actual, expected, tolerance=1e-9)


@pytest.mark.parametrize("kind", FORMS)
def test_gradients_with_a_graph_where_rows_depend_on_x(kind):
    """As in a layer, whose parts read the x that is added to them."""
    branches, activation = FORMS[kind]
    norms, x, mask = make(7, 3, branches)
    x.requires_grad_()
    own = [branch._replace(rows=branch.rows * x.sin()) for branch in norms]
    out = residual_norm(own, x, mask, form=Form(True, activation=activation), backend="triton").pow(3).sum()
    (expected,) = torch.autograd.grad(out, x, retain_graph=True)
    (actual,) = torch.autograd.grad(out, x, create_graph=True)
    assert_close(actual.detach(), expected, tolerance=1e-9)


def test_opcheck():
    (one, two), x, mask = make(6, 3, 2)
    rows = [t.requires_grad_() for t in (one[0], two[0], x, one[1], one[2], two[1], two[2])]
    seed = ops.new_seeds(1, DEVICE)[0]
    rest = (one[3], one[4], two[3], two[4], mask, seed, [0.5, 0.0], [True, False], 1e-5, False, 0, True)
    torch.library.opcheck(norm_forward.library, (*rows, *rest))


@pytest.mark.parametrize("backend", ["naive", "triton"])
def test_a_seed_that_is_not_given_is_drawn(backend):
    (part,), x, mask = make(6, 3, 1, dropout=0.5)
    torch.manual_seed(0)
    out = residual_norm([part], x, mask, form=Form(True), backend=backend)
    torch.manual_seed(0)
    seed = ops.new_seeds(1, DEVICE)[0]
    assert torch.equal(out, residual_norm([part], x, mask, form=Form(True), seed=seed, backend=backend))


def test_bad_input():
    norms, x, mask = make(6, 3, 2)
    with pytest.raises(ValueError, match="branches: expected one, or two without activation, got 2"):
        residual_norm(norms, x, mask, form=Form(True, activation=True))
    with pytest.raises(ValueError, match=r"mask: expected shape \[6\], got \[5\]"):
        residual_norm(norms, x, mask[1:], form=Form(True))
    with pytest.raises(ValueError, match="mask: expected a boolean tensor"):
        residual_norm(norms, x, mask.long(), form=Form(True))
    with pytest.raises(ValueError, match=r"weight: expected shape \[3\], got \[2\]"):
        residual_norm([norms[0]._replace(weight=torch.ones(2))], x, mask, form=Form(True))
