import numpy as np
import pytest
import torch
from graphs import complete, cycle, dense_adjacency, edgeless, graphs, path, random_graph, star, two_triangles
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData

from gssc import DeepSetPhi, EmptySpectrumWarning, GSSConv, LaplacianSpectrum, RandomWalkSE, prepare
from gssc.testing import assert_permutation_equivariant

OPERATORS = ["sym", "combinatorial", "adjacency"]


def values(data):
    return data.eigvals[data.eigmask].double().numpy()


@pytest.mark.parametrize(
    ("data", "operator", "expected"),
    [
        (path(5), "combinatorial", [2 - 2 * np.cos(np.pi * j / 5) for j in range(5)]),
        (path(5), "sym", [1 - np.cos(np.pi * j / 4) for j in range(5)]),
        (cycle(6), "sym", sorted(1 - np.cos(2 * np.pi * j / 6) for j in range(6))),
        (cycle(6), "adjacency", [2, -2, 1, 1, -1, -1]),
        (complete(5), "combinatorial", [0, 5, 5, 5, 5]),
        (complete(5), "sym", [0, 1.25, 1.25, 1.25, 1.25]),
        (star(5), "combinatorial", [0, 1, 1, 1, 5]),
        (star(5), "sym", [0, 1, 1, 1, 2]),
        (star(5), "adjacency", [2, -2, 0, 0, 0]),
        (two_triangles(), "sym", [0, 0, 1.5, 1.5, 1.5, 1.5]),
        (edgeless(3), "sym", [0, 0, 0]),
        (edgeless(1), "combinatorial", [0]),
    ],
)
def test_closed_forms(float64, data, operator, expected):
    out = LaplacianSpectrum(k=8, operator=operator)(data)
    np.testing.assert_allclose(values(out), expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
@given(graphs(), st.sampled_from(OPERATORS), st.integers(1, 14), st.sampled_from(["keep", "drop"]))
def test_pairs_are_orthonormal_eigenpairs(data, operator, k, zero_modes):
    out = LaplacianSpectrum(k, operator, zero_modes)(data)
    a = dense_adjacency(data)
    degree = a.sum(1)
    scale = np.diag([d**-0.5 if d > 0 else 0.0 for d in degree])
    matrix = {
        "adjacency": a,
        "combinatorial": np.diag(degree) - a,
        "sym": np.diag((degree > 0).astype(float)) - scale @ a @ scale,
    }[operator]
    p, lam = out.eigvecs[:, out.eigmask[0]].numpy(), values(out)
    np.testing.assert_allclose(matrix @ p, p * lam, atol=1e-12)
    np.testing.assert_allclose(p.T @ p, np.eye(lam.size), atol=1e-12)
    every = np.linalg.eigvalsh(matrix)
    if operator == "adjacency":
        np.testing.assert_allclose(np.abs(lam), np.sort(np.abs(every))[::-1][: lam.size], atol=1e-12)
    elif zero_modes == "keep":
        np.testing.assert_allclose(lam, every[: lam.size], atol=1e-12)
        assert (lam >= 0).all()
    else:
        assert (lam > 0).all()


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("nodes", [0, 1, 2, 3])
def test_fewer_nodes_than_k_are_padded(operator, nodes):
    out = LaplacianSpectrum(k=5, operator=operator)(edgeless(nodes))
    assert out.eigvals.shape == (1, 5)
    assert out.eigvecs.shape == (nodes, 5)
    assert out.eigmask.tolist() == [[i < nodes for i in range(5)]]
    assert out.eigmask.dtype == torch.bool
    assert torch.isfinite(out.eigvecs).all()


def test_pyg_batching_stacks_graphs():
    transform = LaplacianSpectrum(k=4)
    batch = Batch.from_data_list([transform(path(3)), transform(cycle(7))])
    assert batch.eigvals.shape == batch.eigmask.shape == (2, 4)
    assert batch.eigvecs.shape == (10, 4)


def test_fiedler_vector_splits_two_joined_triangles():
    data = two_triangles()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[2, 3], [3, 2]])], dim=1)
    fiedler = LaplacianSpectrum(k=2)(data).eigvecs[:, 1]
    assert fiedler[:3].sign().unique().numel() == fiedler[3:].sign().unique().numel() == 1
    assert fiedler[0].sign() != fiedler[3].sign()


def test_zero_mode_is_one_mean_per_component():
    out = LaplacianSpectrum(k=2, operator="combinatorial")(two_triangles())
    kernel = out.eigvecs @ out.eigvecs.T
    expected = torch.block_diag(torch.full((3, 3), 1 / 3), torch.full((3, 3), 1 / 3))
    torch.testing.assert_close(kernel, expected)


def test_weights_are_respected_and_can_be_ignored():
    data = path(3)
    data.edge_weight = torch.full((4,), 2.0)
    heavy = LaplacianSpectrum(k=3, operator="combinatorial")(data)
    plain = LaplacianSpectrum(k=3, operator="combinatorial", weight_attr=None)(data)
    torch.testing.assert_close(heavy.eigvals, 2 * plain.eigvals)


def test_no_eigenspace_fits_warns_and_masks_all():
    with pytest.warns(EmptySpectrumWarning, match="1 graph keeps no eigenpair"):
        out = LaplacianSpectrum(k=2, zero_modes="drop")(complete(5))
    assert not out.eigmask.any()
    assert LaplacianSpectrum(k=2, zero_modes="drop", truncation="raw")(complete(5)).eigmask.all()


def test_same_bytes_whatever_the_global_rng():
    transform = LaplacianSpectrum(k=6)
    first = transform(random_graph(20))
    torch.manual_seed(1234)
    np.random.seed(99)  # noqa: NPY002, the legacy global state is what is tested
    assert torch.equal(first.eigvecs, transform(random_graph(20)).eigvecs)


def test_input_is_not_changed():
    data = path(3)
    LaplacianSpectrum(k=2)(data)
    assert "eigvals" not in data


def test_graph_without_edge_index():
    assert LaplacianSpectrum(k=2)(Data(x=torch.ones(2, 1))).eigmask.all()


def test_random_walk_encoding():
    out = RandomWalkSE(steps=3)(complete(3))
    torch.testing.assert_close(out.rwse, torch.tensor([[0.0, 0.5, 0.25]]).expand(3, 3))


def test_reprs_name_every_argument():
    assert "operator='adjacency'" in repr(LaplacianSpectrum(operator="adjacency"))
    assert repr(RandomWalkSE(steps=5)).startswith("RandomWalkSE(steps=5")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k: expected a positive integer, got 0"),
        ({"operator": "symm"}, r"operator: expected one of .* got 'symm' \(did you mean 'sym'\?\)"),
        ({"zero_modes": "none"}, "zero_modes: expected one of 'keep', 'drop', got 'none'"),
        ({"truncation": "cut"}, "truncation: expected one of"),
        ({"directed": "yes"}, "directed: expected one of"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LaplacianSpectrum(**arguments)


def test_bad_data():
    with pytest.raises(ValueError, match=r"data: expected a torch_geometric\.data\.Data, got HeteroData"):
        LaplacianSpectrum()(HeteroData())


def both_ways(n: int, u: torch.Tensor, v: torch.Tensor, weight: torch.Tensor) -> Data:
    index = torch.stack([torch.cat([u, v]), torch.cat([v, u])])
    return Data(edge_index=index, edge_weight=torch.cat([weight, weight]), num_nodes=n)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("spread", [1e-13, 1e-12, 1e-8])
@pytest.mark.parametrize("operator", ["sym", "combinatorial", "adjacency"])
def test_near_degenerate_cuts_do_not_depend_on_the_order_of_nodes(spread: float, operator: str) -> None:
    """A complete graph of 10 nodes whose nine equal eigenvalues are torn apart by rounding, or by little more."""
    u, v = torch.triu_indices(10, 10, 1)
    weight = 1.0 + spread * (2.0 * torch.rand(45) - 1.0)
    graph = both_ways(10, u, v, weight)
    graph.x = torch.randn(10, 4)
    phi, conv = DeepSetPhi(4), GSSConv(4)

    def function(data: Data) -> torch.Tensor:
        return conv(data.x, phi(data.eigvals, data.eigmask), data.eigvecs)

    transform = LaplacianSpectrum(4, operator)
    alone = transform.spectrum(graph)
    assert int(alone.mask.sum()) == 1
    assert alone.certificate.turn <= 1e-9
    assert torch.equal(prepare([graph], transform, progress=False)[0].eigmask[0], torch.from_numpy(alone.mask))
    for seed in range(3):
        assert_permutation_equivariant(function, graph, transform, tolerance=1e-9, seed=seed)


REFUSED = {
    "a sum that overflows": (
        "sym",
        torch.tensor([1e308, 1.7e308], dtype=torch.float64),
        r"edge_weight[^:]*: expected weights whose sum",
    ),
    "more than float32 has": (
        "combinatorial",
        torch.tensor([1e170, 1.0], dtype=torch.float64),
        r"edge_weight[^:]*: .* \(float32\)",
    ),
    "not finite": ("sym", torch.tensor([torch.inf, 1.0]), "edge_weight: expected finite numbers"),
    "sparse": ("sym", torch.ones(2).to_sparse(), "edge_weight[^:]*: expected a dense tensor"),
}


@pytest.mark.parametrize(("operator", "weight", "line"), REFUSED.values(), ids=REFUSED)
def test_prepare_and_the_transform_refuse_the_same_graphs_in_one_line(operator, weight, line) -> None:
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_weight=weight, num_nodes=3)
    transform = LaplacianSpectrum(2, operator)
    for run in (lambda: transform(graph.clone()), lambda: prepare([graph], transform, progress=False)):
        with pytest.raises(ValueError, match=line) as caught:
            run()
        assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_features_do_no_harm(layout: torch.layout) -> None:
    graph = Data(x=torch.eye(3).to_sparse(layout=layout), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
    transform = LaplacianSpectrum(2)
    (together,) = prepare([graph], transform, RandomWalkSE(3), progress=False)
    assert together.x.layout == layout
    assert torch.equal(transform(graph.clone()).eigvals, together.eigvals)
    assert RandomWalkSE(3)(graph).rwse.shape == (3, 3)
