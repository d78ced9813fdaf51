"""GSSConv against Eq. 4 and Eq. 6 to the letter, written out from z and the W's for every pair of nodes."""

import copy
import inspect
import itertools
from functools import partial

import pytest
import torch
import torch.nn.utils.prune
from batches import make_ptr, make_vectors

from gssc import GSSConv
from gssc.nn import gssconv
from gssc.ops import conv_of_linears, gssc_conv
from gssc.ops.context import GraphContext
from gssc.testing import assert_close

pytestmark = pytest.mark.usefixtures("float64")


def literal(conv, x, phi, vectors, ptr):
    """Node by node: z_u [K, c], the two inner products over frequencies, the two sums of Eq. 4."""
    out = torch.zeros_like(x)
    for g, (begin, end) in enumerate(itertools.pairwise(ptr.tolist())):
        nodes = range(begin, end)
        z = {u: torch.diag(vectors[u]) @ phi[g] for u in nodes}
        if conv.selective:
            z = {
                u: sum(
                    ((z[u] @ conv.lin_dq.weight.T) * (z[v] @ conv.lin_dk.weight.T)).sum(0)
                    * ((z[v] * x[v]) @ conv.lin_dv.weight.T)
                    for v in nodes
                )
                for u in nodes
            }
        for u in nodes:
            for v in nodes:
                kernel = ((z[u] @ conv.lin_q.weight.T) * (z[v] @ conv.lin_k.weight.T)).sum(0)
                if conv.kernel == "shared":
                    kernel = kernel.sum()
                out[u] += kernel * (conv.lin_o.weight @ x[v])
            if conv.self_term:
                kernel = ((z[u] @ conv.lin_sq.weight.T) * (z[u] @ conv.lin_sk.weight.T)).sum(0)
                if conv.kernel == "shared":
                    kernel = kernel.sum()
                out[u] += kernel * (conv.lin_s.weight @ x[u])
    return out


def inputs(sizes=(4, 0, 1, 6), frequencies=5, channels=3, phi_channels=3):
    sizes = list(sizes)
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    x, phi = torch.randn(sum(sizes), channels), torch.randn(len(sizes), frequencies, phi_channels)
    return x, phi, make_vectors(sizes, frequencies), batch, make_ptr(sizes)


@pytest.mark.parametrize("kernel", ["channel", "shared"])
@pytest.mark.parametrize("self_term", [True, False])
@pytest.mark.parametrize("phi_channels", [3, 2])
def test_equation_4_to_the_letter(kernel, self_term, phi_channels):
    conv = GSSConv(3, phi_channels, kernel=kernel, self_term=self_term)
    x, phi, vectors, batch, ptr = inputs(phi_channels=phi_channels)
    assert_close(conv(x, phi, vectors, batch), literal(conv, x, phi, vectors, ptr), tolerance=1e-12)


@pytest.mark.parametrize("kernel", ["channel", "shared"])
@pytest.mark.parametrize("self_term", [True, False])
def test_equation_6_to_the_letter(kernel, self_term):
    conv = GSSConv(3, kernel=kernel, selective=True, normalize=False, self_term=self_term)
    x, phi, vectors, batch, ptr = inputs()
    assert_close(conv(x, phi, vectors, batch), literal(conv, x, phi, vectors, ptr), tolerance=1e-12)


def test_normalized_selection_is_bounded_where_the_raw_one_explodes():
    x, phi, vectors, batch, _ = inputs()
    raw, tame = GSSConv(3, selective=True, normalize=False), GSSConv(3, selective=True, normalize=True)
    tame.load_state_dict(raw.state_dict())

    def growth(conv):
        small, large = conv(x, phi, vectors, batch), conv(1e3 * x, phi, vectors, batch)
        return float((large.norm() / small.norm()).detach())

    assert growth(raw) == pytest.approx(1e9, rel=1e-6)  # cubic in x
    assert growth(tame) < 1e6


def test_defaults_are_linear_layers_without_bias_under_the_names_of_the_paper():
    shapes = {name: tuple(p.shape) for name, p in GSSConv(4, 2).named_parameters()}
    assert shapes == {
        "lin_q.weight": (4, 2),
        "lin_k.weight": (4, 2),
        "lin_sq.weight": (4, 2),
        "lin_sk.weight": (4, 2),
        "lin_o.weight": (4, 4),
        "lin_s.weight": (4, 4),
    }
    assert {"lin_dq", "lin_dk", "lin_dv"} <= dict(GSSConv(4, selective=True).named_children()).keys()


def test_batch_and_context_say_the_same_and_one_graph_needs_neither():
    conv = GSSConv(3, degree_scaling=True)
    torch.nn.init.normal_(conv.degree_log_scale)
    x, phi, vectors, batch, ptr = inputs()
    degree = torch.arange(11.0)
    context = GraphContext(11, 4, ptr, batch, known_degree=degree)
    expected = conv(x, phi, vectors, batch, degree)
    assert_close(conv(x, phi, vectors, context=context), expected)
    context.gains = {conv: conv.gains(2 * phi)}
    assert_close(conv(x, phi, vectors, context=context), 4 * expected)
    conv = GSSConv(3)
    assert_close(conv(x, phi[:1], vectors), conv(x, phi[:1], vectors, torch.zeros_like(batch)))


def test_degree_scaling_scales_the_input():
    conv, plain = GSSConv(3, degree_scaling=True), GSSConv(3)
    plain.load_state_dict(conv.state_dict(), strict=False)
    x, phi, vectors, batch, _ = inputs()
    degree = torch.arange(11)
    assert_close(conv(x, phi, vectors, batch, degree=degree), plain(x, phi, vectors, batch))
    torch.nn.init.constant_(conv.degree_scale, 2.0)
    torch.nn.init.constant_(conv.degree_log_scale, 3.0)
    scaled = x * (2.0 + 3.0 * torch.log(degree + 1.0)).unsqueeze(1)
    assert_close(conv(x, phi, vectors, batch, degree=degree), plain(scaled, phi, vectors, batch))


@pytest.mark.parametrize("selective", [False, True])
def test_out_proj_follows_the_global_term(selective):
    conv = GSSConv(3, out_proj=True, selective=selective)
    parts = {term: GSSConv(3, self_term=term, selective=selective) for term in (True, False)}
    for part in parts.values():
        part.load_state_dict(conv.state_dict(), strict=False)
    args = inputs()[:4]
    glob, own = parts[False](*args), parts[True](*args) - parts[False](*args)
    assert_close(conv(*args), glob @ conv.lin_out.weight.T + conv.lin_out.bias + own)


@pytest.mark.parametrize("selective", [False, True])
def test_all_masked_graph_gives_zero(selective):
    conv = GSSConv(3, selective=selective)
    out = conv(torch.randn(4, 3), torch.zeros(1, 5, 3), torch.zeros(4, 5))
    assert (out == 0).all()


def test_empty_batch_and_no_nodes():
    conv = GSSConv(3)
    empty = torch.empty(0, dtype=torch.long)
    assert conv(torch.zeros(0, 3), torch.zeros(0, 5, 3), torch.zeros(0, 5), empty).shape == (0, 3)
    assert conv(torch.zeros(0, 3), torch.zeros(2, 5, 3), torch.zeros(0, 5), empty).shape == (0, 3)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda x, phi, p, b: GSSConv(0), "channels: expected a positive integer, got 0"),
        (lambda x, phi, p, b: GSSConv(3, kernel="chanel"), "did you mean 'channel'"),
        (lambda x, phi, p, b: GSSConv(3, 2, selective=True), "phi_channels: expected channels = 3"),
        (lambda x, phi, p, b: GSSConv(4)(x, phi, p, b), r"x: expected shape \[\*, 4\], got \[11, 3\]"),
        (lambda x, phi, p, b: GSSConv(3, 2)(x, phi, p, b), r"phi: expected shape \[\*, \*, 2\]"),
        (lambda x, phi, p, b: GSSConv(3)(x, phi, p[:, :4], b), r"vectors: expected shape \[11, 5\], got \[11, 4\]"),
        (lambda x, phi, p, b: GSSConv(3)(x, phi, p, b.flip(0)), "batch: expected graph numbers in ascending order"),
        (lambda x, phi, p, b: GSSConv(3)(x, phi, p), "batch: expected the graph number of every node for 4 graphs"),
        (lambda x, phi, p, b: GSSConv(3)(x, phi[:2], p, b), "batch: expected graph numbers in 0..1, got 0..3"),
        (lambda x, phi, p, b: GSSConv(3, degree_scaling=True)(x, phi, p, b), "degree: expected the degree of every"),
    ],
)
def test_bad_input(action, message):
    with pytest.raises(ValueError, match=message):
        action(*inputs()[:4])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("self_term", [True, False])
def test_the_projection_commutes_with_shared_gains(self_term):
    """One call for both terms, against the Linear after the global term."""
    conv = GSSConv(6, 5, kernel="shared", self_term=self_term, out_proj=True)
    x, phi, vectors = torch.randn(9, 6, requires_grad=True), torch.randn(2, 3, 5), torch.randn(9, 3)
    batch, ptr = torch.tensor([0] * 4 + [1] * 5), torch.tensor([0, 4, 9])
    actual, (gains, self_gains) = conv(x, phi, vectors, batch), conv.gains(phi)
    expected = conv.lin_out(gssc_conv(conv.lin_o(x), None, vectors, gains, None, ptr))
    if self_term:
        expected = expected + gssc_conv(None, conv.lin_s(x), vectors, None, self_gains, ptr)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    leaves = [x, *conv.parameters()]
    gradients = [torch.autograd.grad(out.square().sum(), leaves) for out in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


@pytest.mark.parametrize("settings", [{"kernel": "shared", "out_proj": True, "degree_scaling": True}, {}], ids=str)
def test_kernels_give_what_pytorch_gives(settings, monkeypatch):
    """As on a GPU, against float64 (the kernels' sums are float32): output, and gradients of x and every parameter."""
    pytest.importorskip("triton")
    conv = GSSConv(3, **settings)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for sizes in ((4, 0, 1, 6), (1,), (0,)):
        x, phi, vectors, batch, _ = inputs(sizes)
        results = []
        for backend, dtype, place in (("triton", torch.float32, device), ("torch", torch.float64, "cpu")):
            monkeypatch.setattr(gssconv, "conv_of_linears", partial(conv_of_linears, backend=backend))
            fresh = copy.deepcopy(conv).to(place, dtype)
            leaf = x.to(place, dtype).detach().clone().requires_grad_()
            rest = (phi.to(place, dtype), vectors.to(place, dtype), batch.to(place))
            out = fresh(leaf, *rest, degree=torch.arange(x.shape[0]).to(place, dtype))
            out.pow(3).sum().backward()
            values = {"out": out, "x": leaf.grad, **{name: p.grad for name, p in fresh.named_parameters()}}
            results.append({name: value.detach().cpu().double() for name, value in values.items()})
        for name, expected in results[1].items():
            assert_close(results[0][name], expected, name, 2e-5)


LINEARS = ["lin_o", "lin_s", "lin_out", "lin_q", "lin_k", "lin_sq", "lin_sk"]
KINDS = {
    "shared": {"kernel": "shared"},
    "channel": {"kernel": "channel"},
    "selective": {"selective": True},
    "selective, shared": {"selective": True, "kernel": "shared"},
}


class Adapted(torch.nn.Module):
    """A Linear and something beside it, as adapters are."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return 2 * self.linear(x)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LINEARS)
def test_hooks_pruning_and_replacements_of_its_linears_have_their_effect(name, kind):
    """All three halve or double what the Linear gives: the convolution is that of a Linear with such a weight."""
    conv = GSSConv(3, **KINDS[kind], normalize=False, out_proj=True)
    args = inputs()[:4]

    def scaled(factor):
        other = copy.deepcopy(conv)
        for parameter in getattr(other, name).parameters():
            parameter.data.mul_(factor)
        return other(*args)

    hooked, pruned, replaced, calls = copy.deepcopy(conv), copy.deepcopy(conv), copy.deepcopy(conv), []
    getattr(hooked, name).register_forward_hook(lambda module, inputs, out: calls.append(name) or 2 * out)
    assert_close(hooked(*args), scaled(2.0))
    assert calls
    mask = torch.tensor([[1.0, 0.0, 1.0]]).expand(3, 3)
    torch.nn.utils.prune.custom_from_mask(getattr(pruned, name), "weight", mask)
    getattr(pruned, name).weight_orig.data.mul_(1.5)  # seen only where its hook runs again
    other = copy.deepcopy(conv)
    getattr(other, name).weight.data.mul_(1.5 * mask)
    assert_close(pruned(*args), other(*args))
    setattr(replaced, name, Adapted(getattr(replaced, name)))
    assert_close(replaced(*args), scaled(2.0))


def test_degrees_of_a_wrong_shape_are_refused():
    conv = GSSConv(4, kernel="shared", out_proj=True, degree_scaling=True)
    with pytest.raises(ValueError, match="degree"):
        conv(torch.randn(5, 4), torch.randn(1, 3, 4), torch.randn(5, 3), degree=torch.ones(1))


def test_forward_is_short():
    """The method is what the module says: context, scaling, features, gains, op."""
    source, _ = inspect.getsourcelines(GSSConv.forward)
    body = "".join(source).split('"""')[2]
    assert len(body.strip().splitlines()) <= 25


def test_inner_width_of_a_shared_kernel_and_no_projections():
    x, phi, vectors, batch, ptr = inputs(phi_channels=2)
    narrow = GSSConv(3, 2, "shared", kernel_channels=7)
    assert narrow.lin_q.weight.shape == narrow.lin_sk.weight.shape == (7, 2)
    assert_close(narrow(x, phi, vectors, batch), literal(narrow, x, phi, vectors, ptr))
    bare, same = (
        GSSConv(3, 2, "shared", out_proj=True, in_proj=full, kernel_channels=k) for full, k in ((0, None), (1, 2))
    )
    unit = {f"lin_{name}.weight": torch.eye(3 if name in "os" else 2) for name in ("q", "k", "o", "sq", "sk", "s")}
    same.load_state_dict(bare.state_dict() | unit)
    assert_close(bare(x, phi, vectors, batch), same(x, phi, vectors, batch))
    for wrong in ({"kernel": "channel"}, {"kernel": "shared", "selective": True}):
        for name, value in (("kernel_channels", 2), ("in_proj", False)):
            with pytest.raises(ValueError, match=rf"{name}: expected \w+, but for kernel='shared' .*without selection"):
                GSSConv(3, **{name: value}, **wrong)
    with pytest.raises(ValueError, match="kernel_channels: expected None, but for kernel='shared' with in_proj"):
        GSSConv(3, kernel="shared", kernel_channels=2, in_proj=False)


def test_degree_coefficients_begin_as_they_are_told():
    one, small = (GSSConv(500, 1, degree_scaling=True, degree_init=init) for init in ("one", "small"))
    assert torch.equal(one.degree_scale, torch.ones(500))
    assert not one.degree_log_scale.any()
    for coefficients in (small.degree_scale, small.degree_log_scale):
        assert float(coefficients.detach().var()) == pytest.approx(1 / 1000, rel=0.25)
