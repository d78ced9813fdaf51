import math
from functools import partial

import numpy as np
import pytest
import scipy.linalg
import torch
from graphs import dense_adjacency, random_graph, two_triangles
from torch._dynamo.testing import CompileCounterWithBackend

from gssc import (
    DeepSetPhi,
    DiffusionPhi,
    ElementwisePhi,
    LaplacianSpectrum,
    PageRankPhi,
    PolynomialPhi,
    ResistancePhi,
    TransformerPhi,
)
from gssc.nn import phi as phi_modules
from gssc.nn.phi import SpecformerPhi
from gssc.ops import phi as phi_ops
from gssc.testing import assert_close

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MAKERS = {
    "deepset": lambda: DeepSetPhi(8),
    "elementwise": lambda: ElementwisePhi(8),
    "polynomial": lambda: PolynomialPhi(8),
    "transformer": lambda: TransformerPhi(8),
    "specformer": lambda: SpecformerPhi(8),
    "diffusion": DiffusionPhi,
    "pagerank": PageRankPhi,
    "resistance": ResistancePhi,
}
pytestmark = pytest.mark.usefixtures("float64")
every_phi = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def spectrum(graphs=3, frequencies=6):
    values = torch.rand(graphs, frequencies).sort(dim=1).values * 2
    values[:, 0] = 0.0
    mask = torch.arange(frequencies) < torch.tensor([[frequencies], [2], [0]])[:graphs]
    return values.masked_fill(~mask, 0.0), mask


@every_phi
def test_shape_zero_where_masked_finite_when_all_is(make):
    phi, (values, mask) = make(), spectrum()
    out = phi(values, mask)
    assert out.shape == (3, 6, phi.channels)
    assert (out[~mask] == 0).all()
    assert torch.isfinite(out).all()
    out.sum().backward() if out.requires_grad else None
    assert all(torch.isfinite(p.grad).all() for p in phi.parameters() if p.grad is not None)


@every_phi
def test_permuting_frequencies_permutes_the_encoding(make):
    phi, (values, mask) = make(), spectrum()
    order = torch.randperm(6)
    assert_close(phi(values[:, order], mask[:, order]), phi(values, mask)[:, order])


@every_phi
def test_equal_eigenvalues_get_equal_rows(make):
    phi = make()
    out = phi(torch.tensor([[0.0, 0.7, 0.7, 1.2]]), torch.ones(1, 4, dtype=torch.bool))
    assert_close(out[0, 1], out[0, 2])


@every_phi
def test_padding_and_what_it_holds_do_not_matter(make):
    phi, (values, mask) = make(), spectrum(1)
    longer = torch.cat([values, torch.tensor([[17.0, -3.0]])], dim=1)
    longer_mask = torch.cat([mask, torch.zeros(1, 2, dtype=torch.bool)], dim=1)
    assert_close(phi(longer, longer_mask)[:, :6], phi(values, mask))


@pytest.mark.parametrize("kind", ["deepset", "transformer"])
def test_sees_the_other_frequencies_and_elementwise_does_not(kind):
    mask = torch.ones(1, 3, dtype=torch.bool)
    one, other = torch.tensor([[0.0, 0.5, 1.0]]), torch.tensor([[0.0, 0.5, 1.9]])
    phi, alone = MAKERS[kind](), ElementwisePhi(8)
    assert (phi(one, mask) - phi(other, mask))[0, :2].abs().max() > 1e-3
    assert_close(alone(one, mask)[0, :2], alone(other, mask)[0, :2])


def test_any_number_of_channels_has_a_number_of_heads():
    assert [TransformerPhi(c).heads for c in (8, 6, 5)] == [4, 2, 1]


def kernels(phi, data, operator):
    out = LaplacianSpectrum(k=data.num_nodes, operator=operator)(data)
    return torch.einsum("uk,kc,vk->cuv", out.eigvecs, phi(out.eigvals, out.eigmask)[0], out.eigvecs).numpy()


@pytest.mark.parametrize("data", [random_graph(9), two_triangles()], ids=["random", "two triangles"])
def test_fixed_kernels_against_expm_inverse_and_pinv(data):
    a = dense_adjacency(data)
    degree = a.sum(1)
    laplacian = np.diag(degree) - a
    scale = np.diag(degree**-0.5)
    walk = scale @ a @ scale
    for t, kernel in zip((0.3, 2.0), kernels(DiffusionPhi((0.3, 2.0)), data, "combinatorial"), strict=True):
        np.testing.assert_allclose(kernel, scipy.linalg.expm(-t * laplacian), atol=1e-12)
    for alpha, kernel in zip((0.1, 1.0), kernels(PageRankPhi((0.1, 1.0)), data, "sym"), strict=True):
        expected = alpha * np.linalg.inv(np.eye(len(a)) - (1 - alpha) * walk)
        np.testing.assert_allclose(kernel, expected, atol=1e-12)
    (resistance,) = kernels(ResistancePhi(), data, "combinatorial")
    np.testing.assert_allclose(resistance, np.linalg.pinv(laplacian), atol=1e-12)


@pytest.mark.parametrize("data", [random_graph(9), two_triangles()], ids=["random", "two triangles"])
def test_powers_count_walks(data):
    phi, a = PolynomialPhi(8, degree=4, scale=2.5), dense_adjacency(data)
    phi.mlp = torch.nn.Identity()
    for power, kernel in enumerate(kernels(phi, data, "adjacency"), start=1):
        np.testing.assert_allclose(kernel * 2.5**power, np.linalg.matrix_power(a, power), atol=1e-11)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: DeepSetPhi(0), "channels: expected a positive integer"),
        (lambda: PolynomialPhi(8, degree=0), "degree: expected a positive integer"),
        (lambda: PolynomialPhi(8, scale=0.0), "scale: expected a positive number"),
        (lambda: TransformerPhi(6, heads=4), "heads: expected a divisor of channels = 6"),
        (lambda: DiffusionPhi([-1.0]), "times: expected one or more times of at least 0"),
        (lambda: PageRankPhi([0.0]), "restarts: expected one or more probabilities"),
        (lambda: ResistancePhi()(torch.ones(2, 3), torch.ones(2, 4, dtype=torch.bool)), "eigmask: expected shape"),
        (lambda: ResistancePhi()(torch.ones(2, 3), torch.ones(2, 3)), "eigmask: expected a boolean tensor"),
    ],
)
def test_bad_input(action, message):
    with pytest.raises(ValueError, match=message):
        action()


def watch(phi):
    phi.update[0][2].register_forward_hook(lambda *_: None)


def replace(phi):
    phi.pool[0][0] = torch.nn.Linear(16, 16, bias=False)


def widen(phi):
    phi.embed = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.LayerNorm(16, eps=1e-3), torch.nn.SiLU())


@pytest.fixture
def on_gpu(monkeypatch, pretend_gpu):
    """As on a GPU: the kernels run where they can; a list of the calls of their op."""
    pytest.importorskip("triton")
    calls, op = [], phi_ops.triton.deep_set
    pretend_gpu(True, phi_ops)
    monkeypatch.setattr(phi_ops.triton, "deep_set", lambda *args: calls.append(1) or op(*args))
    return calls


@pytest.mark.parametrize("change", [None, watch, replace, widen])
def test_kernels_stand_for_modules_where_they_may(on_gpu, change):
    phi, (values, mask) = DeepSetPhi(16, 1).float(), spectrum()
    if change is not None:
        change(phi.float())
    values, mask = values.float().to(DEVICE), mask.to(DEVICE)
    out = phi.float().to(DEVICE)(values, mask)
    assert len(on_gpu) == (change is None)
    expected = phi.double().encode(values.double(), mask).masked_fill(~mask.unsqueeze(-1), 0.0)
    assert_close(out.double(), expected, tolerance=1e-5)


def test_kernels_are_not_asked_for_what_they_cannot_do(on_gpu):
    values, mask = spectrum()
    for phi, given in (
        (DeepSetPhi(16, 1), values),
        (DeepSetPhi(129, 1).float(), values.float()),
        (DeepSetPhi(16, 1).float(), values.float().requires_grad_()),
        (type("Other", (DeepSetPhi,), {"encode": lambda self, *_: torch.ones(3, 6, 16)})(16, 1), values.float()),
    ):
        phi(given, mask)
    assert not on_gpu


def test_kernels_in_a_compiled_module(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(phi_modules, "deep_set", partial(phi_ops.deep_set, backend="triton"))
    phi, batches = DeepSetPhi(16, 1).float().to(DEVICE), [spectrum(graphs) for graphs in (2, 3)]
    counter, found, compilations = CompileCounterWithBackend("aot_eager"), [], []
    for call in (torch.compile(phi, backend=counter, fullgraph=True, dynamic=True), phi):
        for values, mask in batches:
            out = call(values.float().to(DEVICE), mask.to(DEVICE))
            found.append([out, *torch.autograd.grad(out.square().sum(), list(phi.parameters()))])
            compilations.append(counter.frame_count)
    assert compilations[0] == compilations[-1]  # one program for all numbers of graphs
    assert "gssc.deep_set" in str(counter.graphs[-1].graph)
    for own, other in zip([*found[0], *found[1]], [*found[2], *found[3]], strict=True):
        assert torch.equal(own, other)


def test_fixed_kernels_keep_double_precision():
    eigvals, eigmask = torch.tensor([[0.3, 1.7]], dtype=torch.float64), torch.ones(1, 2, dtype=torch.bool)
    assert torch.equal(DiffusionPhi([0.1])(eigvals, eigmask)[0, :, 0], torch.exp(-0.1 * eigvals[0]))
    assert_close(PageRankPhi([0.1])(eigvals, eigmask)[0, :, 0], 0.1 / (0.1 + 0.9 * eigvals[0]), tolerance=1e-15)


def test_specformer_begins_with_waves_of_each_eigenvalue(float64):
    phi = SpecformerPhi(4)
    value = 0.7
    waves = [100 * value / 10_000 ** (2 * i / 4) for i in range(2)]
    expected = torch.tensor([value, *map(math.sin, waves), *map(math.cos, waves)])
    assert_close(phi.embedded(torch.tensor([[value]]))[0, 0], phi.embed(expected))
