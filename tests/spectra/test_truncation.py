"""The one rule of truncation: by hand, against plain NumPy row by row, and that both ways to a spectrum follow it."""

import networkx as nx
import numpy as np
import plain_truncation
import pytest
import torch
from closed_forms import complete, cycle, disjoint, grid, hypercube, path, star
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from scipy.linalg import block_diag
from torch_geometric.data import Data

from gssc.spectra.batched import solve_batched
from gssc.spectra.operators import OPERATORS, build_operator
from gssc.spectra.packed import pack
from gssc.spectra.solve import solve
from gssc.spectra.truncation import (
    CLUSTER_TOLERANCE,
    SpectrumSettings,
    cut,
    largest_cluster,
    magnitude_order,
    merge_clusters,
    select,
)

TOLERANCE = 1e-9
# Few distinct values, both signs, zeros, and noise below the tolerance: clusters and ties everywhere.
VALUE = st.tuples(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), st.sampled_from([0.0, 1e-10, -3e-10]))
ROWS = st.lists(st.lists(VALUE.map(sum), min_size=1, max_size=9), min_size=1, max_size=5)


def one_row(values: list[float], tolerance: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    row = torch.tensor([values], dtype=torch.float64)
    return row, torch.tensor([len(values)]), torch.tensor([tolerance], dtype=torch.float64)


def padded(rows: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[np.ndarray]]:
    """Ascending rows padded beyond their largest value, their lengths and tolerances, and the rows themselves."""
    arrays = [np.sort(np.array(row)) for row in rows]
    size = max(map(len, arrays))
    values = torch.full((len(rows), size), 100.0, dtype=torch.float64)
    for target, array in zip(values, arrays, strict=True):
        target[: len(array)] = torch.from_numpy(array)
    tolerance = torch.full((len(rows),), TOLERANCE, dtype=torch.float64)
    return values, torch.tensor([len(a) for a in arrays]), tolerance, arrays


def test_clusters_take_their_mean_and_noise_becomes_zero():
    values, cluster = merge_clusters(*one_row([-1e-17, 1e-16, 0.5 - 1e-15, 0.5 + 1e-15, 0.9], 1e-14))
    assert values.tolist() == [[0.0, 0.0, 0.5, 0.5, 0.9]]
    assert cluster.tolist() == [[0, 0, 1, 1, 2]]


def test_clusters_of_nothing():
    assert merge_clusters(*one_row([], 1e-9))[0].numel() == 0
    assert largest_cluster(np.zeros(0), 1e-9) == 0


def test_largest_cluster():
    assert largest_cluster(np.array([0.0, 1.0, 1.0 + 1e-10, 1.0 + 2e-10, 2.0]), 1e-9) == 3


def test_magnitude_order_puts_plus_before_minus():
    row = one_row([-2.0 - 1e-15, -1.0, 0.0, 1.0, 2.0], 1e-12)
    assert row[0][0, magnitude_order(*row)[0]].tolist() == [2.0, -2.0 - 1e-15, 1.0, -1.0, 0.0]


@pytest.mark.parametrize(
    ("k", "mode", "zero", "kept"),
    [
        (3, "eigenspace", "keep", [0.0]),
        (3, "raw", "keep", [0.0, 1.0, 1.0]),
        (4, "eigenspace", "keep", [0.0, 1.0, 1.0, 1.0]),
        (6, "eigenspace", "keep", [0.0, 1.0, 1.0, 1.0, 2.0]),
        (3, "eigenspace", "drop", [1.0, 1.0, 1.0]),
        (2, "eigenspace", "drop", []),
    ],
)
def test_cut_keeps_whole_eigenspaces(k, mode, zero, kept):
    values, count, tolerance = one_row([0.0, 1.0, 1.0, 1.0, 2.0], 1e-12)
    settings = SpectrumSettings(k, zero_modes=zero)
    out = select(values, count, settings, tolerance, whole=mode == "eigenspace")
    assert out.values[out.mask].tolist() == kept
    assert out.mask[0].tolist() == [i < len(kept) for i in range(k)]
    assert (out.values[~out.mask] == 0).all()
    assert values[0, out.index[0, : len(kept)]].tolist() == kept


def test_by_magnitude_ignores_zero_modes():
    values, count, tolerance = one_row([-3.0, 0.0, 1.0], 1e-12)
    out = select(values, count, SpectrumSettings(3, "adjacency", "drop"), tolerance, whole=True)
    assert out.values.tolist() == [[-3.0, 1.0, 0.0]]
    assert out.mask.all()


@settings(deadline=None, max_examples=150)
@given(ROWS)
def test_clusters_equal_those_of_each_row(rows: list[list[float]]) -> None:
    values, count, tolerance, arrays = padded(rows)
    merged, cluster = merge_clusters(values, count, tolerance)
    for i, array in enumerate(arrays):
        want, number = plain_truncation.merge_clusters(array, TOLERANCE)
        assert np.array_equal(merged[i, : len(array)].numpy(), want)
        assert np.array_equal(cluster[i, : len(array)].numpy(), number)


@settings(deadline=None, max_examples=300)
@given(
    ROWS,
    st.integers(1, 11),
    st.booleans(),
    st.sampled_from(["keep", "drop"]),
    st.sampled_from(["eigenspace", "raw"]),
)
def test_selection_equals_that_of_each_row(rows, k, by_magnitude, zero_modes, truncation) -> None:
    values, count, tolerance, arrays = padded(rows)
    options = {"by_magnitude": by_magnitude, "zero_modes": zero_modes, "truncation": truncation}
    wanted = SpectrumSettings(k, "adjacency" if by_magnitude else "sym", zero_modes)
    chosen = select(values, count, wanted, tolerance, whole=truncation == "eigenspace")
    size = values.shape[1]
    vectors = torch.randn(len(rows), size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    index = chosen.index.unsqueeze(2).expand(-1, -1, size)
    kept = vectors.gather(1, index) * chosen.mask.unsqueeze(2)
    for i, array in enumerate(arrays):
        n = len(array)
        want, gap = plain_truncation.truncate(array, vectors[i, :n, :].T.numpy(), k, tolerance=TOLERANCE, **options)
        assert np.array_equal(chosen.values[i].numpy(), want.values)
        assert np.array_equal(chosen.mask[i].numpy(), want.mask)
        assert np.array_equal(kept[i].T.numpy(), want.vectors)
        assert int(chosen.available[i]) == want.available
        assert float(chosen.gap[i]) == gap


@pytest.mark.parametrize(
    ("k", "truncation", "gap"),
    [(2, "eigenspace", 0.5), (3, "eigenspace", 0.5), (3, "raw", 0.0), (4, "raw", 2.0), (5, "eigenspace", np.inf)],
)
def test_gap_at_the_cut(k: int, truncation: str, gap: float) -> None:
    values, count, tolerance = one_row([0.0, 0.5, 1.0, 1.0, 3.0], TOLERANCE)
    assert float(select(values, count, SpectrumSettings(k), tolerance, whole=truncation == "eigenspace").gap) == gap


def test_gap_is_measured_at_both_ends_of_the_adjacency_matrix_and_from_dropped_zero_modes() -> None:
    values, count, tolerance = one_row([-3.0, -2.5, 0.0, 1.0, 3.5], TOLERANCE)
    assert float(select(values, count, SpectrumSettings(2, "adjacency"), tolerance, whole=True).gap) == 0.5
    values, count, tolerance = one_row([0.0, 0.5, 0.5], TOLERANCE)
    nothing = select(values, count, SpectrumSettings(1, zero_modes="drop"), tolerance, whole=True)
    assert not nothing.mask.any()
    assert float(nothing.gap) == 0.5


def test_tolerance_is_that_of_the_pairs_at_stake() -> None:
    values, count, _ = one_row([0.0, 0.0, 1.0, 2.0, 3.0], 0.0)
    errors = torch.tensor([[0.0, 1e-12, 1e-11, 1e-10, 1e-9]], dtype=torch.float64)
    zeros = torch.tensor([2])
    for wanted, largest in (
        (SpectrumSettings(1), 1e-12),
        (SpectrumSettings(2), 1e-11),
        (SpectrumSettings(1, zero_modes="drop"), 1e-10),
        (SpectrumSettings(1, "adjacency"), 1e-9),
        (SpectrumSettings(9), 1e-9),
    ):
        assert float(cut(values, errors, count, wanted, zeros)[0]) == CLUSTER_TOLERANCE * largest


def test_a_chain_whose_mean_lies_far_from_its_members_is_cut_only_far_above_it() -> None:
    """Steps of 0.9 tolerances make a cluster of which the ends are ten times as far from the mean as from the rest."""
    step = 0.9 * CLUSTER_TOLERANCE * 1e-12
    chain = [1.0 + i * step for i in range(20)] + [1.0 + 20.5 * step]
    values = torch.tensor([chain, list(range(21))], dtype=torch.float64)
    tolerance, chosen, _ = cut(values, torch.full_like(values, 1e-12), torch.tensor([21, 21]), SpectrumSettings(20))
    assert tolerance.tolist() == pytest.approx([1e-11, 1e-11])
    assert chosen.mask.sum(1).tolist() == [0, 20]


def test_a_cut_needs_a_gap_far_above_rounding_relative_to_the_eigenvalues_around_it() -> None:
    low = 1e-5 * torch.tensor([[0.0, 1.0, 2.0, 2.0 + 1e-6, 4.0, 1e6]], dtype=torch.float64)
    errors, count = torch.full_like(low, 1e-14), torch.tensor([6])

    def kept(k: int, **about: object) -> int:
        return int(cut(low, errors, count, SpectrumSettings(k), torch.tensor([1]), **about).whole.mask.sum())

    # Iterative: modes of a large grid, 1e-6 of ‖L‖ apart, stay; two that are 1e-6 of themselves apart are not parted.
    assert [kept(k) for k in range(1, 6)] == [1, 2, 2, 4, 5]
    # Dense: what rounding can move by 1e-9 is not kept, but the zero mode is exact.
    norm = torch.tensor([10.0], dtype=torch.float64)
    assert [kept(k, norm=norm) for k in range(1, 6)] == [1, 1, 1, 1, 5]
    assert [kept(k, floor=2e-5) for k in range(1, 6)] == [0, 0, 0, 0, 5]


def data_of(adjacency: sp.csr_array) -> Data:
    entries = adjacency.tocoo()
    index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    return Data(edge_index=index, edge_weight=torch.from_numpy(entries.data), num_nodes=adjacency.shape[0])


def random_weighted(seed: int, kind: str) -> sp.csr_array:
    """Random weights: wide, over six orders of magnitude; near, of which many differ by less than 1e-9."""
    rng = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(6 + seed % 30, 0.2, seed=seed)
    for u, v in graph.edges:
        graph[u][v]["weight"] = 10.0 ** rng.uniform(-3, 3) if kind == "wide" else rng.choice([1.0, 1 + 1e-12, 1 + 1e-9])
    return sp.csr_array(nx.to_scipy_sparse_array(graph, dtype=float))


def graphs_with_degenerate_spectra() -> list[sp.csr_array]:
    sizes = (1, 2, 3, 4, 7, 12, 33)
    out = [family(n) for family in (complete, path) for n in sizes]
    out += [star(n) for n in sizes[1:]] + [cycle(n) for n in sizes[2:]]
    out += [sp.csr_array((n, n)) for n in sizes] + [grid(6, 6), hypercube(5)]
    out.append(disjoint(*[cycle(5)] * 3, *[complete(4)] * 2, star(7), sp.csr_array((2, 2))))
    out.append(disjoint(*[path(2)] * 12))
    # Two cliques that hardly hang together, and a cycle with one edge that is hardly longer.
    weak, bent = disjoint(complete(6), complete(6)).tolil(), cycle(12).tolil()
    weak[0, 6] = weak[6, 0] = 1e-7
    bent[0, 1] = bent[1, 0] = 1 + 1e-8
    out += [weak.tocsr(), bent.tocsr()]
    return out + [random_weighted(seed, kind) for seed in range(40) for kind in ("wide", "near")]


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("zero_modes", ["keep", "drop"])
@pytest.mark.parametrize("truncation", ["eigenspace", "raw"])
@pytest.mark.parametrize("k", [3, 8, 40])
def test_one_graph_and_many_at_once_keep_the_same_pairs(operator, zero_modes, truncation, k) -> None:
    graphs = [sp.csr_array(a) for a in graphs_with_degenerate_spectra()]
    together = solve_batched(pack([data_of(a) for a in graphs]), SpectrumSettings(k, operator, zero_modes, truncation))
    for g, adjacency in enumerate(graphs):
        alone = solve(adjacency, operator, k, zero_modes=zero_modes, truncation=truncation)
        scale = max(1.0, float(abs(build_operator(adjacency, operator)).sum(axis=1).max()))
        assert np.array_equal(together.eigmask[g].numpy(), alone.mask)
        assert int(together.available[g]) == alone.available
        np.testing.assert_allclose(together.eigvals[g].numpy(), alone.values, atol=1e-12 * scale, rtol=1e-12)
        # The same values are equal to one another, and the same are exactly zero.
        assert np.array_equal(np.diff(together.eigvals[g].numpy()) == 0.0, np.diff(alone.values) == 0.0)
        np.testing.assert_allclose(float(together.gap[g]), alone.certificate.gap, atol=1e-11 * scale, rtol=1e-11)


def test_a_raw_cut_through_zero_modes_keeps_those_of_the_first_nodes() -> None:
    """A tree whose weights differ by 1e60 has noise below its exact zero; others are a node beside long and short."""
    tree = sp.lil_array((8, 8))
    for u, v, weight in ((0, 1, 1e30), (0, 2, 1.0), (1, 3, 1e-30), (2, 4, 1e30), (2, 5, 1.0), (5, 6, 1e30)):
        tree[u, v] = tree[v, u] = weight
    for graph, sizes in ((tree, [7, 1]), (disjoint(path(2), path(600), path(2), path(1)), [2, 600, 2, 1])):
        graph, modes = sp.csr_array(graph), block_diag(*(np.full((size, 1), size**-0.5) for size in sizes))
        for k in range(1, len(sizes)):
            alone = solve(graph, "combinatorial", k, truncation="raw")
            np.testing.assert_allclose(alone.vectors, modes[:, :k], atol=1e-15)
            assert (alone.certificate.gap, alone.certificate.turn) == (0.0, 1.0)
            together = solve_batched(pack([data_of(graph)]), SpectrumSettings(k, "combinatorial", truncation="raw"))
            np.testing.assert_allclose(together.eigvecs, alone.vectors, atol=1e-15)
            assert (float(together.gap), float(together.turn)) == (0.0, 1.0)
