"""The batched solver against the dense solver graph by graph, on ordinary and on ugly graphs."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gssc.spectra import batched
from gssc.spectra.batched import solve_batched
from gssc.spectra.certificate import SpectrumError
from gssc.spectra.operators import OPERATORS, build_operator, degrees
from gssc.spectra.packed import PackedGraphs, pack
from gssc.spectra.random_walk import return_probabilities
from gssc.spectra.solve import solve
from gssc.spectra.truncation import SpectrumSettings


def graph(n: int, edges: list[tuple[int, int]], weight: list[float] | None = None) -> Data:
    """Both directions of every edge given; a loop once."""
    both = [e for u, v in edges for e in ([(u, v)] if u == v else [(u, v), (v, u)])]
    index = torch.tensor(both, dtype=torch.long).reshape(-1, 2).T
    data = Data(edge_index=index, num_nodes=n)
    if weight is not None:
        doubled = [w for (u, v), w in zip(edges, weight, strict=True) for w in [w] * (1 if u == v else 2)]
        data.edge_weight = torch.tensor(doubled, dtype=torch.float64)
    return data


def adjacency_of(graphs: PackedGraphs, number: int) -> sp.csr_array:
    nodes = int(graphs.ptr[number + 1] - graphs.ptr[number])
    return graphs.adjacency(torch.tensor([number]), nodes, "symmetrize")


def complete(n: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(n) for j in range(i)]


UGLY = [
    graph(0, []),
    graph(1, []),
    graph(1, [(0, 0)]),
    graph(5, []),
    graph(2, [(0, 1)]),
    graph(7, complete(7)),
    graph(13, [(0, i) for i in range(1, 13)]),
    graph(9, [(3 * i + a, 3 * i + b) for i in range(3) for a, b in complete(3)]),
    graph(12, [(2 * i, 2 * i + 1) for i in range(6)]),
    graph(4, [(0, 1), (0, 1), (1, 2), (1, 2), (1, 2), (3, 3)]),
    graph(6, [(i, i + 1) for i in range(5)], [1e-3, 1e2, 1.0, 0.0, 2.0]),
    graph(40, [(i, (i + 1) % 40) for i in range(40)]),
    graph(33, [(i, i + 1) for i in range(32)]),
]


@st.composite
def generated(draw: st.DrawFn) -> Data:
    """Multi-edges, loops, isolated nodes, one-way edges and equal weights all come up."""
    n = draw(st.integers(1, 14))
    node = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=30))
    index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T
    if draw(st.booleans()):
        index = torch.cat([index, index.flip(0)], dim=1)
    data = Data(edge_index=index, num_nodes=n)
    if draw(st.booleans()):
        weight = st.sampled_from([0.0, 0.25, 1.0, 1.0, 2.0, 3.5])
        size = index.shape[1]
        data.edge_weight = torch.tensor(draw(st.lists(weight, min_size=size, max_size=size)), dtype=torch.float64)
    return data


def check_against_dense(graphs: PackedGraphs, spectrum: SpectrumSettings, steps: int = 5, device: str = "cpu") -> None:
    got = solve_batched(graphs, spectrum, steps, device=device)
    for g in range(graphs.num_graphs):
        rows = slice(int(graphs.ptr[g]), int(graphs.ptr[g + 1]))
        a = adjacency_of(graphs, g)
        options = {"zero_modes": spectrum.zero_modes, "truncation": spectrum.truncation}
        want = solve(a, spectrum.operator, spectrum.k, **options)
        scale = max(1.0, float(np.abs(want.values).max(initial=0.0)))
        values, vectors = got.eigvals[g].numpy(), got.eigvecs[rows].numpy()
        assert np.array_equal(got.eigmask[g].numpy(), want.mask)
        assert int(got.available[g]) == want.available
        np.testing.assert_allclose(values, want.values, atol=1e-12 * scale, rtol=1e-12)
        assert np.all(vectors[:, ~want.mask] == 0.0)
        matrix = build_operator(a, spectrum.operator).toarray()
        residual = np.linalg.norm(matrix @ vectors - vectors * values, axis=0).max(initial=0.0)
        assert residual <= float(got.residual[g]) + 1e-12 * scale
        assert float(got.residual[g]) <= 1e-11 * scale
        gram = vectors.T @ vectors - np.diag(want.mask.astype(float))
        assert np.abs(gram).max() <= float(got.orthogonality[g]) + 1e-14
        assert float(got.orthogonality[g]) <= 1e-12
        if spectrum.truncation == "eigenspace" and float(got.gap[g]) > 1e-6 * scale:
            # Whole eigenspaces: any function of the operator agrees, whatever basis the solvers chose.
            gain = np.cos(want.values) * want.mask
            np.testing.assert_allclose(
                (vectors * gain) @ vectors.T, (want.vectors * gain) @ want.vectors.T, atol=1e-8, rtol=0
            )
        if spectrum.operator != "adjacency":
            np.testing.assert_allclose(got.rwse[rows].numpy(), return_probabilities(a, steps), atol=1e-13)
        np.testing.assert_allclose(got.degree[rows].numpy(), degrees(a), rtol=1e-14)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("zero_modes", ["keep", "drop"])
@pytest.mark.parametrize("truncation", ["eigenspace", "raw"])
def test_ugly_graphs(operator, zero_modes, truncation) -> None:
    check_against_dense(pack(UGLY), SpectrumSettings(6, operator, zero_modes, truncation))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("zero_modes", ["keep", "drop"])
def test_ugly_graphs_on_a_gpu(operator, zero_modes) -> None:
    check_against_dense(pack(UGLY), SpectrumSettings(6, operator, zero_modes), device="cuda")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(generated(), min_size=1, max_size=6),
    st.sampled_from(OPERATORS),
    st.integers(1, 16),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["eigenspace", "raw"]),
)
def test_generated_graphs(graphs, operator, k, zero_modes, truncation) -> None:
    check_against_dense(pack(graphs), SpectrumSettings(k, operator, zero_modes, truncation))


def test_closed_forms_and_exact_zero_modes() -> None:
    out = solve_batched(pack(UGLY), SpectrumSettings(40, "combinatorial"))
    cycle = np.sort(2 - 2 * np.cos(2 * np.pi * np.arange(40) / 40))
    np.testing.assert_allclose(out.eigvals[11].numpy(), cycle, atol=1e-13)
    path = 2 - 2 * np.cos(np.pi * np.arange(33) / 33)
    np.testing.assert_allclose(out.eigvals[12, :33].numpy(), path, atol=1e-13)
    ptr = pack(UGLY).ptr
    triangles = out.eigvecs[ptr[7] : ptr[8], :3]
    assert torch.equal(out.eigvals[7, :3], torch.zeros(3, dtype=torch.float64))
    assert torch.equal(triangles, torch.eye(3, dtype=torch.float64).repeat_interleave(3, 0) * (1 / 3) ** 0.5)


def test_small_gap_keeps_exact_zero_modes_orthogonal() -> None:
    """Two cliques joined by a weak edge: λ₂ is near zero, and the zero mode still exactly constant."""
    clique = complete(20)
    edges = clique + [(a + 20, b + 20) for a, b in clique] + [(0, 20)]
    weak = graph(40, edges, [1.0] * (len(edges) - 1) + [1e-8])
    out = solve_batched(pack([weak]), SpectrumSettings(2, "combinatorial"))
    assert out.eigmask.all()
    assert torch.equal(out.eigvecs[:, 0], torch.full((40,), (1 / 40) ** 0.5, dtype=torch.float64))
    # λ₂ ≈ w (1/20 + 1/20) to first order in w.
    assert float(out.eigvals[0, 1]) == pytest.approx(1e-9, rel=1e-4)
    assert float(out.orthogonality) < 1e-13


def test_bytes_depend_on_the_graph_alone() -> None:
    """Not on the dataset around it, the threads, the chunks or the global random state."""
    generator = torch.Generator().manual_seed(3)
    data = []
    for n in torch.randint(5, 60, (40,), generator=generator).tolist():
        upper = (torch.rand(n, n, generator=generator) < 0.15).triu(1).nonzero().T
        data.append(Data(edge_index=torch.cat([upper, upper.flip(0)], 1), num_nodes=n))
    spectrum = SpectrumSettings(8, "sym")
    together = solve_batched(pack(data), spectrum, 6)
    threads, ptr = torch.get_num_threads(), pack(data).ptr
    torch.manual_seed(12345)
    try:
        torch.set_num_threads(3)
        again = solve_batched(pack(data), spectrum, 6)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    backwards = solve_batched(pack(data[::-1]), spectrum, 6)
    rows = torch.cat([torch.arange(a, b) for a, b in zip(ptr[:-1].flip(0), ptr[1:].flip(0), strict=True)])
    for name in ("eigvecs", "rwse", "degree"):
        assert torch.equal(getattr(again, name), getattr(together, name))
        assert torch.equal(getattr(backwards, name), getattr(together, name)[rows])
    for name in ("eigvals", "eigmask", "residual", "gap"):
        assert torch.equal(getattr(again, name), getattr(together, name))
        assert torch.equal(getattr(backwards, name), getattr(together, name).flip(0))


def test_components_in_any_order_of_nodes_and_with_edges_that_count_for_nothing() -> None:
    """A path numbered from both ends, loops, weights of zero, and weights that cancel."""
    path = [0, 7, 1, 6, 2, 5, 3, 4]
    mixed = graph(5, [(0, 1), (1, 2), (1, 2), (3, 4)], [1.0, 2.0, -2.0, 1.0])
    data = [
        graph(8, list(pairwise(path))),
        graph(5, [(0, 1), (2, 2), (3, 4)]),
        graph(5, [(0, 1), (1, 2), (2, 3), (3, 4)], [1.0, 0.0, 1.0, 1.0]),
        mixed,
    ]
    for some in (data, data[:2], data[2:3]):
        for operator in ("sym", "combinatorial"):
            check_against_dense(pack(some), SpectrumSettings(4, operator))
    zeros = (solve_batched(pack(data), SpectrumSettings(5, "combinatorial")).eigvals == 0.0).sum(1)
    assert zeros.tolist() == [1, 3, 2, 3]


def test_components_are_numbered_by_their_first_nodes() -> None:
    a = np.zeros((3, 8, 8))
    for u, v in [(0, 1), (1, 2), (0, 3), (3, 4), (4, 5), (5, 6), (6, 7)]:
        a[0, u, v] = a[0, v, u] = 1.0
    for u, v in [(0, 5), (5, 2), (1, 4), (3, 3)]:
        a[1, u, v] = a[1, v, u] = 0.5
    is_node = torch.arange(8) < torch.tensor([8, 6, 1]).unsqueeze(1)
    want = torch.tensor([[0] * 8, [0, 1, 0, 2, 1, 0, -1, -1], [0] + [-1] * 7])
    assert torch.equal(
        batched._component_numbers(sp.block_diag([sp.csr_array(block) for block in a], format="csr"), is_node), want
    )


def test_only_some_graphs_and_report_of_progress() -> None:
    graphs = pack(UGLY[4:8])
    told: list[int] = []
    out = solve_batched(graphs, SpectrumSettings(3), 2, only=torch.tensor([True, False, True, False]), done=told.append)
    assert sum(told) == 2
    assert out.eigmask.any(1).tolist() == [True, False, True, False]
    assert (out.degree[graphs.ptr[1] : graphs.ptr[2]] == 0).all()


def test_walks_alone_equal_explicit_powers() -> None:
    graphs = pack(UGLY)
    for steps in (1, 2, 7, 20):
        out = solve_batched(graphs, None, steps)
        assert out.eigvecs.shape == (graphs.num_nodes, 0)
        for g in range(graphs.num_graphs):
            a = adjacency_of(graphs, g).toarray()
            d = a.sum(1)
            walk = np.divide(a, d[:, None], out=np.zeros_like(a), where=d[:, None] > 0)
            powers = [np.diagonal(np.linalg.matrix_power(walk, t)) for t in range(1, steps + 1)]
            rows = slice(int(graphs.ptr[g]), int(graphs.ptr[g + 1]))
            np.testing.assert_allclose(out.rwse[rows].numpy(), np.array(powers).T.reshape(-1, steps), atol=1e-13)


def test_no_graphs() -> None:
    out = solve_batched(pack([]), SpectrumSettings(4), 3)
    assert out.eigvals.shape == (0, 4)
    assert out.rwse.shape == (0, 3)


def test_bad_graphs_are_named() -> None:
    fine = graph(3, [(0, 1)])
    one_way = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2)
    with pytest.raises(ValueError, match=r"edge_index of graph 1: .* undirected .* got 1 asymmetric"):
        solve_batched(pack([fine, one_way]), SpectrumSettings(2), directed="reject")
    negative = graph(3, [(0, 1)], [-1.0])
    with pytest.raises(ValueError, match=r"edge_weight of graph 1: .* 'sym', got -1"):
        solve_batched(pack([fine, negative]), SpectrumSettings(2))
    with pytest.raises(ValueError, match=r"edge_weight of graph 1: .* 'random walk'"):
        solve_batched(pack([fine, negative]), None, 3)
    values = solve_batched(pack([fine, negative]), SpectrumSettings(1, "adjacency", truncation="raw")).eigvals
    assert values[1].item() == pytest.approx(1.0)


@pytest.mark.parametrize("damage", ["vectors", "values"])
def test_a_solver_that_fails_is_not_believed(monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
    real = torch.linalg.eigh

    def wrong(matrix: torch.Tensor, **options: str) -> tuple[torch.Tensor, torch.Tensor]:
        values, vectors = real(matrix, **options)
        if damage == "values":
            return values + 1e-6, vectors
        vectors[:, :, 1] = vectors[:, :, 0]
        values[:, 1] = values[:, 0]
        return values, vectors

    monkeypatch.setattr(batched.torch.linalg, "eigh", wrong)
    with pytest.raises(SpectrumError, match="graph 0 of 7 nodes"):
        solve_batched(pack([UGLY[5]]), SpectrumSettings(3))


def test_a_solver_that_does_not_converge_names_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(matrix: torch.Tensor, **options: str) -> None:
        raise torch.linalg.LinAlgError("linalg.eigh: (Batch element 1): The algorithm failed to converge")

    monkeypatch.setattr(batched.torch.linalg, "eigh", diverges)
    with pytest.raises(SpectrumError, match="graph 2: the dense solver did not converge"):
        solve_batched(pack([UGLY[5], UGLY[6], UGLY[6]]), SpectrumSettings(3))


def killers() -> list[tuple[Data, list[float]]]:
    """Graphs that break solvers, with the closed-form spectrum of D - A."""
    ring = [2 - 2 * np.cos(2 * np.pi * i / 500) for i in range(500)]
    grid = [4 - 2 * np.cos(np.pi * i / 20) - 2 * np.cos(np.pi * j / 20) for i in range(20) for j in range(20)]
    cells = [(20 * i + j, 20 * i + j + 1) for i in range(20) for j in range(19)]
    cells += [(20 * i + j, 20 * i + j + 20) for i in range(19) for j in range(20)]
    cube = [(i, i ^ (1 << b)) for i in range(256) for b in range(8) if i < i ^ (1 << b)]
    return [
        (graph(400, [(2 * i, 2 * i + 1) for i in range(200)]), [0.0] * 200 + [2.0] * 200),
        (graph(180, [(3 * i + a, 3 * i + b) for i in range(60) for a, b in complete(3)]), [0.0] * 60 + [3.0] * 120),
        (graph(150, complete(150)), [0.0] + [150.0] * 149),
        (graph(500, [(0, i) for i in range(1, 500)]), [0.0] + [1.0] * 498 + [500.0]),
        (graph(500, [(i, (i + 1) % 500) for i in range(500)]), ring),
        (graph(400, cells), grid),
        (graph(256, cube), [2.0 * i.bit_count() for i in range(256)]),
        (graph(511, []), [0.0] * 511),
    ]


def test_killers_have_their_closed_form_spectra() -> None:
    data, spectra = zip(*killers(), strict=True)
    out = solve_batched(pack(data), SpectrumSettings(512, "combinatorial"))
    for g, spectrum in enumerate(spectra):
        n = len(spectrum)
        assert int(out.eigmask[g].sum()) == n
        np.testing.assert_allclose(out.eigvals[g, :n].numpy(), np.sort(spectrum), atol=1e-11)
        distinct = len(np.unique(np.round(spectrum, 9)))
        assert len(np.unique(out.eigvals[g, :n].numpy())) == distinct
    # At k = 32 whole eigenspaces are kept, or none.
    few = solve_batched(pack(data), SpectrumSettings(32, "combinatorial"))
    for g, spectrum in enumerate(spectra):
        ascending = np.sort(spectrum)
        assert int(few.eigmask[g].sum()) == (ascending < ascending[32] - 1e-9).sum()
    assert float(few.gap[5]) > float(few.tolerance[5])


def test_weights_over_twelve_orders_of_magnitude() -> None:
    generator = np.random.default_rng(0)
    edges = [(i, j) for i in range(120) for j in range(i) if generator.random() < 0.1]
    weight = (10.0 ** generator.uniform(-6, 6, len(edges))).tolist()
    data = graph(120, edges, weight)
    for operator in OPERATORS:
        out = solve_batched(pack([data]), SpectrumSettings(120, operator))
        matrix = build_operator(adjacency_of(pack([data]), 0), operator).toarray()
        scale = np.abs(matrix).sum(1).max()
        got = np.sort(out.eigvals[0].numpy())
        np.testing.assert_allclose(got, np.linalg.eigvalsh(matrix), atol=1e-13 * scale)
        vectors = out.eigvecs.numpy()
        rebuilt = (vectors * out.eigvals[0].numpy()) @ vectors.T
        np.testing.assert_allclose(rebuilt, matrix, atol=1e-12 * scale)
