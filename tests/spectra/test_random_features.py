"""Random features: unbiased, converging at the Monte-Carlo rate, equivariant in distribution."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.linalg import expm
from torch_geometric.data import Batch, Data

from gssc.nn.gssconv import GSSConv
from gssc.spectra import RandomFeatures
from gssc.spectra.operators import adjacency_matrix, build_operator
from gssc.spectra.random_features import KERNELS, chebyshev_apply, chebyshev_coefficients


def adjacency(n: int = 14, seed: int = 0) -> sp.csr_array:
    """A weighted graph with an isolated node."""
    generator = np.random.default_rng(seed)
    a = np.triu((generator.random((n, n)) < 0.3) * generator.uniform(0.5, 2.0, (n, n)), 1)
    a[:, -1] = 0.0
    return sp.csr_array(a + a.T)


def exact(a: sp.csr_array, kernel: str, operator: str = "sym", t: float = 1.0, steps: int = 4) -> np.ndarray:
    laplacian = build_operator(a, operator).toarray()
    one = np.eye(a.shape[0])
    if kernel == "diffusion":
        return expm(-t * laplacian)
    if kernel == "regularized_laplacian":
        return np.linalg.inv(one + t * laplacian)
    bound = 2.0 if operator == "sym" else 2.0 * a.sum(1).max()
    return np.linalg.matrix_power(one - laplacian / bound, steps)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
@pytest.mark.parametrize("t", [0.3, 30.0])
def test_polynomial_is_the_square_root(kernel, operator, t) -> None:
    """With unit vectors for probes the features are the square root itself."""
    a = adjacency()
    transform = RandomFeatures(14, kernel, t=t, operator=operator)
    transform._draw = lambda a: np.sqrt(14) * np.eye(14)
    root = transform.features(a)
    np.testing.assert_allclose(root @ root.T, exact(a, kernel, operator, t), atol=1e-7)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("probes", ["rademacher", "gaussian"])
def test_unbiased(kernel, probes) -> None:
    a = adjacency()
    draws = np.stack([(p := RandomFeatures(8, kernel, probes=probes, seed=s).features(a)) @ p.T for s in range(1500)])
    error = draws.mean(0) - exact(a, kernel)
    deviation = draws.std(0) / np.sqrt(len(draws))
    # 14² correlated entries: five standard errors, and no systematic offset. Rademacher is exact for the isolated node.
    assert np.all(np.abs(error) <= 5 * deviation + 1e-9)
    assert np.mean(np.abs(error) > 2 * deviation + 1e-9) < 0.15


def test_error_falls_at_the_monte_carlo_rate() -> None:
    a, want = adjacency(), exact(adjacency(), "diffusion")
    sizes = np.array([8, 32, 128, 512, 2048])
    errors = [
        np.mean([np.linalg.norm((p := RandomFeatures(int(k), seed=s).features(a)) @ p.T - want) for s in range(40)])
        for k in sizes
    ]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert abs(slope + 0.5) < 0.03


def test_equivariant_in_distribution() -> None:
    """Mean and variance of the estimate on a permuted copy are those of the original, permuted.

    For Gaussian probes the variance is known: Var(K̂_uv) = (K_uu K_vv + K_uv²) / k.
    """
    a, k, draws = adjacency(), 4, 3000
    order = np.random.default_rng(1).permutation(14)
    permuted = sp.csr_array(a.toarray()[np.ix_(order, order)])
    want = exact(a, "diffusion")
    variance = (np.outer(np.diag(want), np.diag(want)) + want**2) / k
    for matrix, index in ((a, np.arange(14)), (permuted, order)):
        samples = np.stack(
            [(p := RandomFeatures(k, probes="gaussian", seed=s).features(matrix)) @ p.T for s in range(draws)]
        )
        target = want[np.ix_(index, index)]
        spread = variance[np.ix_(index, index)]
        assert np.all(np.abs(samples.mean(0) - target) < 5 * np.sqrt(spread / draws))
        np.testing.assert_allclose(samples.var(0), spread, rtol=0.25)
    # Not path by path: other node numbers, other probes.
    one, other = RandomFeatures(k).features(a), RandomFeatures(k).features(permuted)
    assert np.abs(one[order] - other).max() > 0.1


def test_same_graph_same_bytes_whatever_the_global_state() -> None:
    a = adjacency()
    first = RandomFeatures(5).features(a)
    np.random.seed(1)  # noqa: NPY002 (the global state is the point)
    torch.manual_seed(1)
    assert np.array_equal(RandomFeatures(5).features(a), first)
    assert not np.array_equal(RandomFeatures(5, seed=1).features(a), first)
    # Graphs of one size do not share their probes, or node numbers would carry information.
    assert not np.array_equal(RandomFeatures(5)._draw(adjacency(seed=3)), RandomFeatures(5)._draw(a))


def test_kernels_side_by_side_and_their_phi() -> None:
    a = adjacency()
    both = RandomFeatures(3, ["diffusion", "random_walk"])
    features = both.features(a)
    assert np.array_equal(features[:, :3], RandomFeatures(3, "diffusion").features(a))
    assert np.array_equal(features[:, 3:], RandomFeatures(3, "random_walk").features(a))
    phi = both.phi(2)
    assert phi.shape == (2, 6, 2)
    # One gain per kernel and channel, and the convolution is that combination of kernels.
    w_q, w_k = torch.rand(2, 5), torch.rand(2, 5)
    gains = (phi[0] @ w_q) * (phi[0] @ w_k)
    assert torch.equal(gains, (w_q * w_k).repeat_interleave(3, 0))
    x = torch.rand(14, 5, dtype=torch.float64)
    p = torch.from_numpy(features)
    got = p @ (gains * (p.T @ x))
    want = sum(p[:, 3 * i : 3 * i + 3] @ (p[:, 3 * i : 3 * i + 3].T @ x) * (w_q * w_k)[i] for i in range(2))
    torch.testing.assert_close(got, want)


@pytest.mark.usefixtures("float64")
def test_gssconv_learns_one_gain_per_kernel_and_channel() -> None:
    """With many probes the layer approaches Σ_i gain_i ⊙ (kernel_i X W_o), graph by graph."""
    kernels = ("diffusion", "random_walk")
    transform = RandomFeatures(40_000, kernels)
    path = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    data = [Data(edge_index=path[:, :4], num_nodes=3), Data(edge_index=path, num_nodes=4)]
    batch = Batch.from_data_list([transform(graph) for graph in data])
    conv = GSSConv(5, phi_channels=2, self_term=False)
    x = torch.randn(7, 5)
    got = conv(x, transform.phi(2), batch.random_features, batch.batch)
    gains = (conv.lin_q.weight * conv.lin_k.weight).T
    for rows, graph in ((slice(0, 3), data[0]), (slice(3, 7), data[1])):
        a = adjacency_matrix(graph.edge_index, None, graph.num_nodes)
        exact_kernels = [torch.from_numpy(exact(a, kernel)) for kernel in kernels]
        want = sum(kernel @ conv.lin_o(x[rows]) * gain for kernel, gain in zip(exact_kernels, gains, strict=True))
        torch.testing.assert_close(got[rows], want, atol=0.02, rtol=0)


@pytest.mark.parametrize("operator", ["sym", "combinatorial"])
def test_transform_on_ordinary_and_ugly_graphs(operator) -> None:
    transform = RandomFeatures(4, KERNELS, operator=operator)
    for data in (
        Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3),
        Data(num_nodes=1),
        Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=3),
        Data(edge_index=torch.tensor([[0, 0], [0, 0]]), num_nodes=2),
        Data(num_nodes=0),
    ):
        out = transform(data).random_features
        assert out.shape == (data.num_nodes, 12)
        assert out.dtype == torch.float32
        assert out.isfinite().all()
    # No edges: the kernel is the identity, and ±1 probes have exact norm.
    isolated = transform(Data(num_nodes=2)).random_features
    torch.testing.assert_close(isolated.view(2, 3, 4).square().sum(2), torch.ones(2, 3))


def test_chebyshev_series() -> None:
    c = chebyshev_coefficients(lambda x: 1.0 + 2.0 * x - x**3, 5.0)
    assert c.size == 4
    x = np.linspace(0, 5, 7)
    got = chebyshev_apply(sp.csr_array(np.diag(x)), 5.0, [c, c[:1]], np.eye(7))
    np.testing.assert_allclose(np.diag(got[:, :7]), 1 + 2 * x - x**3, atol=1e-12)
    np.testing.assert_allclose(got[:, 7:], c[0] * np.eye(7))
    with pytest.raises(ValueError, match="t: expected a kernel that a polynomial"):
        chebyshev_coefficients(lambda x: np.sign(x - 1.0), 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k: expected a positive integer"),
        ({"kernel": "difusion"}, "did you mean 'diffusion'"),
        ({"kernel": []}, "kernel: expected at least one"),
        ({"t": -1.0}, "t: expected a positive number"),
        ({"steps": 3}, "steps: expected an even number"),
        ({"operator": "adjacency"}, "operator: expected one of"),
        ({"probes": "uniform"}, "probes: expected one of"),
        ({"directed": "maybe"}, "directed: expected one of"),
    ],
)
def test_bad_arguments(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        RandomFeatures(**arguments)


def test_repr_names_all_arguments() -> None:
    text = repr(RandomFeatures(3, ("diffusion", "random_walk"), 2.0, 6, "combinatorial", "gaussian", 7, "reject", None))
    assert text == (
        "RandomFeatures(k=3, kernel=('diffusion', 'random_walk'), t=2.0, steps=6, operator='combinatorial', "
        "probes='gaussian', seed=7, directed='reject', weight_attr=None)"
    )
