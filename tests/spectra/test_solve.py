"""Solve: closed forms from every solver, the graphs that break eigensolvers, dense float64 as judge, same bytes."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from closed_forms import (
    closed_forms,
    complete,
    cycle,
    disjoint,
    from_edges,
    grid,
    path,
    random_graph,
    reweighted,
    solve_dense,
    star,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_truncation import magnitude_order

from gssc.spectra import solver_choice
from gssc.spectra.certificate import SpectrumError
from gssc.spectra.operators import OPERATORS, build_operator
from gssc.spectra.solve import solve

ITERATIVE = ("shift_invert", "chebyshev", "lobpcg")
FORMS = closed_forms()


def need(solver):
    if solver == "lobpcg":
        pytest.importorskip("pyamg")


def first(values, k, operator):
    """The first k of all eigenvalues in the order of the operator, ± ties judged at 1e-9."""
    if operator != "adjacency":
        return np.sort(values)[:k]
    return np.array(sorted(values, key=lambda v: (-round(abs(v), 9), v < 0)))[:k]


TRUTH = {}


def dense_truth(adjacency, operator):
    """The operator and all its pairs, solved once per graph."""
    key = adjacency.data.tobytes(), adjacency.indices.tobytes(), adjacency.shape, operator
    if key not in TRUTH:
        TRUTH.clear()
        matrix = build_operator(adjacency, operator).toarray()
        TRUTH[key] = matrix, *solve_dense(matrix)
    return TRUTH[key]


def judge(adjacency, operator, spectrum, allowed=1e-5):
    """Compare a spectrum with dense float64: values, cut, and the projector on every eigenspace kept."""
    matrix, values, vectors, accuracy = dense_truth(adjacency, operator)
    certificate, kept = spectrum.certificate, spectrum.mask.sum()
    assert certificate is not None
    assert np.isfinite(spectrum.values).all()
    assert np.isfinite(spectrum.vectors).all()
    assert not spectrum.values[kept:].any()
    assert not spectrum.vectors[:, kept:].any()
    found, basis = spectrum.values[:kept], spectrum.vectors[:, :kept]
    scale = max(1.0, np.abs(values).max(initial=0.0))
    order = magnitude_order(values, certificate.tolerance) if operator == "adjacency" else np.arange(values.size)
    slack = 3.0 * (certificate.tolerance + accuracy) + 1e-12 * scale
    np.testing.assert_allclose(found, values[order][:kept], atol=slack, rtol=0)
    assert np.abs(basis.T @ basis - np.eye(kept)).max(initial=0.0) <= 1e-8
    residual = np.linalg.norm(matrix @ basis - basis * found, axis=0).max(initial=0.0)
    assert residual <= certificate.residual + 1e-13 * scale
    for value in np.unique(found):
        inside = order[:kept][found == value]
        outside = np.delete(np.arange(values.size), inside)
        gap = np.abs(values[inside][:, None] - values[outside][None, :]).min(initial=np.inf)
        assert gap >= 0.5 * certificate.tolerance, "an eigenspace was split, or a part of it was missed"
        mine, truth = basis[:, found == value], vectors[:, inside]
        error = np.abs(mine @ mine.T - truth @ truth.T).max(initial=0.0)
        assert error <= max(allowed, 3.0 * (certificate.residual + accuracy) / gap)
    return certificate


@pytest.mark.parametrize("solver", ["auto", "dense", *ITERATIVE])
@pytest.mark.parametrize(("name", "operator"), list(FORMS))
def test_closed_forms(name, operator, solver):
    need(solver)
    adjacency, values = FORMS[name, operator]
    raw = solve(adjacency, operator, 8, truncation="raw", solver=solver)
    np.testing.assert_allclose(raw.values, first(values, 8, operator), atol=1e-6, rtol=0)
    assert raw.certificate.solver == ("dense" if solver == "auto" else solver)
    np.testing.assert_allclose(raw.vectors.T @ raw.vectors, np.eye(8), atol=1e-8)
    residual = build_operator(adjacency, operator) @ raw.vectors - raw.vectors * raw.values
    assert np.linalg.norm(residual, axis=0).max() <= 1e-5
    whole = solve(adjacency, operator, 8, solver=solver)
    expected = first(values, 9, operator)
    inside = np.abs(expected[:8] - expected[8]) > 1e-6
    assert whole.mask.sum() == inside.sum()
    np.testing.assert_allclose(whole.values[whole.mask], expected[:8][inside], atol=1e-6, rtol=0)
    assert whole.certificate.residual <= 1e-5
    assert whole.certificate.residual <= 0.1 * whole.certificate.gap


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("zero_modes", ["keep", "drop"])
@pytest.mark.parametrize(
    "graph",
    [
        disjoint(*[path(2)] * 200),
        disjoint(*[cycle(3)] * 60),
        disjoint(*[path(n) for n in np.random.default_rng(0).integers(1, 60, 30)]),
        complete(150),
        sp.csr_array((500, 500)),
        sp.csr_array((1, 1)),
        disjoint(grid(20, 27), sp.csr_array((3, 3)), random_graph(560, 6)),
    ],
    ids=["edges", "triangles", "paths", "K150", "edgeless", "single", "mixed"],
)
def test_killers(graph, operator, zero_modes):
    spectrum = solve(graph, operator, 16, zero_modes=zero_modes)
    values = np.linalg.eigvalsh(build_operator(graph, operator).toarray())
    if zero_modes == "drop" and operator != "adjacency":
        values = values[np.abs(values) > 1e-9]
        assert not (spectrum.values[spectrum.mask] == 0.0).any()
    kept = int(spectrum.mask.sum())
    following = first(values, 17, operator)
    inside = np.abs(following[:16] - following[16]) > 1e-9 if following.size == 17 else np.ones(following.size, bool)
    assert kept == inside.sum()
    np.testing.assert_allclose(spectrum.values[:kept], following[:16][inside], atol=1e-9, rtol=0)
    assert spectrum.available == values.size
    if zero_modes == "keep":
        judge(graph, operator, spectrum)


@pytest.mark.parametrize("operator", OPERATORS)
def test_300_components_of_1_to_40_nodes(operator):
    pieces = [[path, complete][i % 2](1 + i % 40) for i in range(300)]
    spectrum = solve(disjoint(*pieces), operator, 300, zero_modes="drop")
    values = np.concatenate([np.linalg.eigvalsh(build_operator(piece, operator).toarray()) for piece in pieces])
    if operator != "adjacency":
        values = values[np.abs(values) > 1e-9]
    following = first(values, 301, operator)
    inside = np.abs(following[:300] - following[300]) > 1e-9
    assert spectrum.mask.sum() == inside.sum() > 100
    np.testing.assert_allclose(spectrum.values[spectrum.mask], following[:300][inside], atol=1e-9, rtol=0)
    assert spectrum.certificate.level == "proved"


def test_200_edges_keep_their_zero_modes_exactly():
    spectrum = solve(disjoint(*[path(2)] * 200), "sym", 200)
    assert spectrum.mask.all()
    assert (spectrum.values == 0.0).all()
    assert spectrum.certificate.level == "proved"
    assert spectrum.certificate.gap == pytest.approx(2.0)


@pytest.mark.parametrize("solver", ["auto", "chebyshev"])
def test_star_of_100000_keeps_its_zero_mode(solver):
    spectrum = solve(star(100_000), "sym", 32, solver=solver)
    assert spectrum.mask.sum() == 1
    assert spectrum.values[0] == 0.0
    assert spectrum.certificate.gap == pytest.approx(1.0)
    assert spectrum.certificate.level == "proved"
    expected = np.r_[np.sqrt(0.5), np.full(99_999, np.sqrt(0.5 / 99_999))]
    np.testing.assert_allclose(spectrum.vectors[:, 0], expected, atol=1e-12)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("solver", ["auto", "dense", *ITERATIVE])
def test_barbell_with_a_gap_of_1e_6(solver, operator):
    need(solver)
    bridge = sp.csr_array(([1e-6, 1e-6], ([0, 30], [30, 0])), shape=(150, 150))
    graph = disjoint(complete(30), cycle(120)) + bridge
    certificate = judge(graph.tocsr(), operator, solve(graph.tocsr(), operator, 8, solver=solver))
    assert certificate.solver == ("dense" if solver == "auto" else solver)


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("shape", ["grid", "random"])
def test_weights_from_1e_6_to_1e6(shape, operator):
    graph = reweighted(grid(25, 40) if shape == "grid" else random_graph(1000, 8), -6, 6)
    assert judge(graph, operator, solve(graph, operator, 16)).level == "proved"
    if operator != "combinatorial":  # λ/‖L‖ of 1e-12 is out of a filter's reach
        judge(graph, operator, solve(graph, operator, 16, solver="chebyshev"))


def test_filter_out_of_reach_is_a_typed_error_that_names_graph_and_reason(monkeypatch):
    monkeypatch.setattr("gssc.spectra.chebyshev.WORK_LIMIT", 500)
    with pytest.raises(SpectrumError, match=r"300 nodes and 299 edges.*combinatorial.*chebyshev: .*residual"):
        solve(reweighted(path(300), -6, 6), "combinatorial", 16, solver="chebyshev")


def test_failing_solver_is_followed_by_the_next(monkeypatch):
    def broken(*args, **kwargs):
        raise SpectrumError("broken on purpose")

    monkeypatch.setattr(solver_choice, "solve_shift_invert", broken)
    spectrum = solve(grid(42, 49), "sym", 8)
    assert spectrum.certificate.solver == "chebyshev"
    judge(grid(42, 49), "sym", spectrum)


def test_missed_eigenpair_is_noticed_and_solved_again(monkeypatch):
    true = solver_choice.solve_shift_invert

    def forgetful(matrix, count, *args, **kwargs):
        pairs = true(matrix, count + 1, *args, **kwargs)
        keep = np.delete(np.arange(count + 1), 3)
        return type(pairs)(pairs.values[keep], pairs.vectors[:, keep], pairs.residuals[keep], pairs.orthogonality)

    monkeypatch.setattr(solver_choice, "solve_shift_invert", forgetful)
    graph = grid(42, 49)
    spectrum = solve(graph, "sym", 8)
    assert spectrum.certificate.solver == "chebyshev"
    judge(graph, "sym", spectrum)
    # The same without inertia: the random block must notice.
    monkeypatch.setattr(solver_choice, "negative_count", lambda *args: None)
    spectrum = solve(graph, "sym", 8)
    assert (spectrum.certificate.solver, spectrum.certificate.level) == ("chebyshev", "checked")
    assert 0.0 < spectrum.certificate.miss_probability <= 1e-6
    judge(graph, "sym", spectrum)
    with pytest.raises(SpectrumError, match="2058 nodes"):
        solve(graph, "sym", 8, solver="shift_invert")


@pytest.mark.parametrize("k", [1, 2, 5])
def test_zeros_of_weakly_joined_clusters_do_not_use_up_the_pairs(k):
    """Four triangles joined by 1e-17 have four values that are zero within the tolerance, and one zero mode."""
    pairs = [(3 * c + i, 3 * c + j, 1.0) for c in range(4) for i, j in ((0, 1), (1, 2), (0, 2))]
    pairs += [(2, 3, 1e-17), (5, 6, 1e-17), (8, 9, 1e-17), (12, 13, 5.0), (14, 15, 6.0)]
    u, v, w = (np.array(column) for column in zip(*pairs, strict=True))
    u, v = u.astype(int), v.astype(int)
    a = sp.csr_array((np.concatenate([w, w]), (np.concatenate([u, v]), np.concatenate([v, u]))), shape=(16, 16))
    found = solve(a, "combinatorial", k, zero_modes="drop", truncation="raw")
    assert found.certificate.level == "proved"
    np.testing.assert_allclose(found.values[:k], 3.0, atol=1e-12)


def test_large_random_graph_is_checked_and_grid_is_proved():
    assert solve(random_graph(4000, 8), "sym", 16).certificate.level == "checked"
    proved = solve(grid(60, 70), "sym", 16).certificate
    assert (proved.level, proved.solver, proved.miss_probability) == ("proved", "shift_invert", 0.0)


def test_narrow_gap_that_no_count_can_resolve_is_closed():
    # Two equal grids and an edge of 1e-6: pairs of eigenvalues 1e-12 apart, one of them at the cut.
    bridge = sp.csr_array(([1e-6, 1e-6], ([0, 900], [900, 0])), shape=(1800, 1800))
    graph = (disjoint(grid(30, 30), grid(30, 30)) + bridge).tocsr()
    judge(graph, "sym", solve(graph, "sym", 31, solver="shift_invert"))


@pytest.mark.parametrize("solver", ["auto", *ITERATIVE])
@pytest.mark.parametrize("operator", OPERATORS)
def test_same_bytes_whatever_the_global_generators_hold(solver, operator):
    need(solver)
    graph = disjoint(grid(25, 25), random_graph(300, 6), path(7))
    one = solve(graph, operator, 12, solver=solver, seed=3)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002 (the global generator is what is tested)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    two = solve(graph, operator, 12, solver=solver, seed=3)
    assert one.values.tobytes() == two.values.tobytes()
    assert one.vectors.tobytes() == two.vectors.tobytes()
    assert one.certificate == two.certificate
    assert (before[0] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert torch.equal(before[1], torch.get_rng_state())


def test_star_of_50000_by_magnitude():
    spectrum = solve(star(50_000), "adjacency", 16)
    np.testing.assert_allclose(spectrum.values[spectrum.mask], [49_999**0.5, -(49_999**0.5)], rtol=1e-9)
    assert spectrum.certificate.gap == pytest.approx(49_999**0.5)


@pytest.mark.parametrize(("operator", "k"), [("sym", 12), ("combinatorial", 5), ("adjacency", 7)])
@pytest.mark.parametrize("solver", ["shift_invert", "chebyshev"])
def test_the_space_kept_is_turned_by_no_more_than_stated(operator, k, solver):
    graph = grid(29, 23)
    spectrum = solve(graph, operator, k, solver=solver)
    _, values, vectors, _ = dense_truth(graph, operator)
    found = spectrum.vectors[:, spectrum.mask]
    order = magnitude_order(values, 1e-9) if operator == "adjacency" else np.arange(values.size)
    exact = vectors[:, order[: found.shape[1]]]
    sine = np.linalg.norm(found - exact @ (exact.T @ found), 2)
    assert found.shape[1] > 0
    assert sine <= spectrum.certificate.turn + 1e-12
    assert spectrum.certificate.turn <= 0.5
    matrix, kept = build_operator(graph, operator), spectrum.values[spectrum.mask]
    norm = np.linalg.norm(matrix @ found - found * kept)
    assert spectrum.certificate.turn >= 0.9 * (norm - 1e-12) / spectrum.certificate.gap


@pytest.mark.parametrize("factor", [1e-300, 1e-170, 1e170, 1e300, 3e-323])
@pytest.mark.parametrize("operator", OPERATORS)
def test_weights_of_any_size(operator, factor):
    graph = grid(7, 8)
    spectrum = solve(graph * factor, operator, 12)
    expected = solve(graph, operator, 12)
    assert np.array_equal(spectrum.mask, expected.mask)
    unit = 1.0 if operator == "sym" else factor
    # The smallest weights have few digits, and so have their eigenvalues.
    digits = 5e-324 / factor + 1e-9
    np.testing.assert_allclose(spectrum.values / unit, expected.values, rtol=0, atol=digits)
    kernels = [s.vectors @ s.vectors.T for s in (spectrum, expected)]
    np.testing.assert_allclose(*kernels, atol=1e-9)


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="did you mean 'chebyshev'"):
        solve(path(3), "sym", 2, solver="chebychev")
    with pytest.raises(ValueError, match="k: expected a positive integer"):
        solve(path(3), "sym", 0)
    with pytest.raises(ValueError, match="2000 connected nodes, got 2001"):
        solve(path(2001), "sym", 2, solver="dense")


@st.composite
def graphs(draw):
    """Unions of paths, cycles, stars, cliques, grids and random graphs, weighted or not, some joined by weak edges."""
    pieces = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["path", "cycle", "star", "complete", "random", "grid"]))
        n = draw(st.integers(3, 40))
        pieces.append(
            {"path": path, "cycle": cycle, "star": star, "complete": complete}[kind](n)
            if kind in ("path", "cycle", "star", "complete")
            else grid(n // 3, 5)
            if kind == "grid"
            else random_graph(n, 4, draw(st.integers(0, 9)))
        )
    pieces += pieces[: draw(st.integers(0, len(pieces)))]
    graph = disjoint(*pieces)
    n = graph.shape[0]
    if draw(st.booleans()):
        graph = reweighted(graph, *draw(st.sampled_from([(-1, 1), (-4, 4), (0, 0)])), draw(st.integers(0, 9)))
    if draw(st.booleans()):
        ends = np.random.default_rng(draw(st.integers(0, 9))).integers(0, n, (len(pieces), 2))
        ends = ends[ends[:, 0] != ends[:, 1]]
        graph = (graph + from_edges(ends, n, np.full(len(ends), draw(st.sampled_from([1.0, 1e-3]))))).tocsr()
    return graph


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graphs(), st.sampled_from(OPERATORS), st.integers(1, 8), st.sampled_from(["auto", "shift_invert", "chebyshev"]))
def test_generated_graphs_against_dense(graph, operator, k, solver):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver_choice, "DENSE_FIRST", 16)
        patch.setattr("gssc.spectra.solve.dense_size", lambda solver, count: 3 * count + 16)
        judge(graph, operator, solve(graph, operator, k, solver=solver))


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(
    graphs(), st.sampled_from(OPERATORS), st.integers(1, 10), st.sampled_from(["auto", *ITERATIVE]), st.integers(0, 99)
)
def test_many_generated_graphs_against_dense(graph, operator, k, solver, seed):
    need(solver)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solver_choice, "DENSE_FIRST", 16)
        patch.setattr("gssc.spectra.solve.dense_size", lambda solver, count: 6 * count + 48)
        judge(graph, operator, solve(graph, operator, k, solver=solver, seed=seed))
